"""The operator: LatencyProbes and cluster state → node plans, labels, statuses, reports; the agents' directory."""
