"""Objectives as rules and documents for others: Prometheus, its operator, Sloth, Pyrra, OpenSLO. Pure."""
