"""The user's own `kubectl`: their context, their rights, their proxies."""

import re
import subprocess
from collections.abc import Sequence

from latencyprobe.errors import ClusterError

_LOGGED = re.compile(r"[EWI]\d{4} ")  # by klog, above what kubectl itself says


def get(what: Sequence[str], instead: str = "") -> bytes:
    """Return what `kubectl get WHAT --output json` prints.

    `instead`: what a person without kubectl may do. Raises ClusterError with what kubectl said, in one line: not
    installed, no such resource, not allowed, away.
    """
    command = ["kubectl", "get", *what, "--output", "json"]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except FileNotFoundError as error:
        remedy = f"install it, or {instead}" if instead else "install it"
        raise ClusterError(f"kubectl is not installed: {remedy}") from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.decode(errors="replace").splitlines() if not _LOGGED.match(line)]
        said = " ".join(" ".join(lines).split()) or f"exit code {error.returncode}"
        raise ClusterError(f"kubectl: {said}: try `{' '.join(command)}`") from error
