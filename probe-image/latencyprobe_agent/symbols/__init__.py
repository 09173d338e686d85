"""Names of kernel and user addresses, found by a confined process of its own (docs/design/symbols.md)."""
