"""Listener: rows of SLI counts for the reports."""
