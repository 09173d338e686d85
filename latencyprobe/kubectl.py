"""The user's own `kubectl`: their context, their rights, their proxies."""

import re
import signal
import subprocess
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import IO

from latencyprobe.errors import ClusterError

ANSWER_S = 15  # to each request; a log-in that somebody has to type in takes as long as it takes
_LOGGED = re.compile(r"[EWI]\d{4} ")  # by klog, above what kubectl itself says
_UNANSWERED = re.compile(r"couldn't get current server API group list.*(Client\.Timeout|deadline exceeded)")


def get(what: Sequence[str], instead: str = "") -> bytes:
    """Return what `kubectl get WHAT --output json` prints.

    `instead`: what a person without kubectl may do. Raises ClusterError with what kubectl said, in one line: not
    installed, no such resource, not allowed, away; or why it cannot be run.
    """
    command = ["kubectl", "get", *what, "--output", "json"]
    with _temporary_file() as printed:
        try:
            said = _said([*command, f"--request-timeout={ANSWER_S}s"], printed)
        except OSError as error:
            wrong = "is not installed" if isinstance(error, FileNotFoundError) else f"does not start: {error.strerror}"
            raise ClusterError(f"kubectl {wrong}: install it{f', or {instead}' if instead else ''}") from error
        printed.seek(0)
        output = printed.read()
    if said:
        remedy = f"{said} Try" if said.endswith("?") else f"{said.rstrip('.')}: try"
        raise ClusterError(f"kubectl: {remedy} `{' '.join(command)}`")
    return output


def _temporary_file() -> IO[bytes]:
    try:
        return TemporaryFile()
    except OSError as error:
        why = error.strerror
        raise ClusterError(f"no file for what kubectl prints: {why}: set TMPDIR to a folder to write to") from error


def _said(command: Sequence[str], printed: IO[bytes]) -> str:
    """Run a command until its end, or until its API server has not answered; returns why it failed, in one line."""
    said: list[str] = []
    with subprocess.Popen(command, stdout=printed, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stderr or ():
            if _UNANSWERED.search(line):  # it would ask seven times more
                process.kill()
                return f"the API server does not answer within {ANSWER_S} s"
            if not _LOGGED.match(line):
                said.append(line)
    if not process.returncode:
        return ""
    code = process.returncode
    how = f"exit code {code}" if code > 0 else f"ended by a signal: {signal.strsignal(-code)}"
    return " ".join(" ".join(said).split()) or how
