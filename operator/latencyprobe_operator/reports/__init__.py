"""Counts → LatencyReports."""
