"""Live tools of a host, one module per signal: what TCP did, line by line, without plan, cluster or collector."""
