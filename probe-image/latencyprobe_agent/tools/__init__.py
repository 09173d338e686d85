"""Live tools of a host, one module per command: what TCP and the kernel did, without plan, cluster or collector."""
