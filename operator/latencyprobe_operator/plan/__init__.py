"""LatencyProbes and the cluster's state → node plans. Pure."""
