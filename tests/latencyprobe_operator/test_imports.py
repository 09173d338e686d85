"""What the running operator loads: each megabyte is there on every cluster, all the time."""

import subprocess
import sys

CODE = """
import sys
import latencyprobe_operator.app, latencyprobe_operator.cleanup
loaded = [m for m in sys.modules if m.startswith("kubernetes.") and not m.startswith("kubernetes.aio")]
print(sorted(m for m in loaded if sys.modules[m] is not None))
print([line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1])
"""


def test_synchronous_kubernetes_client_is_never_imported_and_memory_is_small() -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, check=True)
    sync, rss_kib = run.stdout.splitlines()
    print(f"{int(rss_kib) / 1024:.0f} MiB after imports")
    assert sync == "[]"
    assert int(rss_kib) <= 66 << 10
