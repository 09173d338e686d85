"""The one loop: kernel → turn → listeners."""
