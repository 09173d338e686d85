"""The programs that start what lies in a lib/ of packages.py, without an environment of pip's."""

from collections.abc import Sequence

# Runs in any Python 3, to say which it needs.
_PORTABLE = """\
#!/usr/bin/env python3
import os
import sys

lib = os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib")
own = os.path.join(lib, "python%d.%d" % sys.version_info[:2], "site-packages")
if not os.path.isdir(own):
    sys.exit("kubectl-latencyprobe: python3 is %d.%d, and {pythons} are what it needs" % sys.version_info[:2])
sys.path[:0] = [own, os.path.join(lib, "python3", "site-packages")]

from latencyprobe.cli import main

main()
"""
_INSTALLED = """\
#!{prefix}/bin/python3 -I
from latencyprobe.cli import main

main()
"""


def portable(pythons: Sequence[str]) -> bytes:
    """Return the program of a folder that may lie anywhere, with these versions of Python in its lib/."""
    return _PORTABLE.replace("{pythons}", ", ".join(pythons)).encode()


def installed(prefix: str) -> bytes:
    """Return the program of an environment at a place that is known."""
    return _INSTALLED.replace("{prefix}", prefix).encode()
