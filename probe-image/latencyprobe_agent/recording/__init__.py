"""Snapshots of the flight recorder: the file, the timeline, and how they are shown; docs/design/tracker.md. Pure."""
