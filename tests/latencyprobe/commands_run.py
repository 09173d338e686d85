"""Runs a command as a shell would."""

from collections.abc import Callable

import pytest

from latencyprobe import group

InCluster = Callable[..., None]  # makes LatencyReports those of the cluster


def run(capfd: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """Return its code, and what it said on standard output and standard error."""
    code = group.run([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return code, out, err
