"""The node agent: measures exchanges in the kernel and exports them."""
