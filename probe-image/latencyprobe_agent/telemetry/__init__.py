"""Out: spans and metrics as OTLP."""
