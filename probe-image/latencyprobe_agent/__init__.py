"""The agent: loads the programs, turns records into spans, metrics and SLI counts. Names and layers: pyproject.toml."""

import os

# numpy's linear algebra, of which nothing is used, would start a thread for each processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
