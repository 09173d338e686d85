"""Where SLI counts live."""
