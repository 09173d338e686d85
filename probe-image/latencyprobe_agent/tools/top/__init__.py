"""`latencyprobe top`: which RPCs are slow now. `tally` adds up, `view` says what is shown of it, `screen` shows it."""
