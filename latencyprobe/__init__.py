"""Shared language of agent and operator: LatencyProbe, plan, SLI counts, SLOs, store, reports, command line."""
