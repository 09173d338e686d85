"""What a LatencyProbe's owner is told: conditions, events."""
