"""The node agent: measures exchanges in the kernel and exports them."""

import os

# numpy's linear algebra, of which nothing is used, would start a thread for each processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
