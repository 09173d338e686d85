"""What a LatencyProbe's owner gets to see: conditions, figures, events; and the labels of nodes."""
