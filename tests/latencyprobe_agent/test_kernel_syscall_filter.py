"""What an agent's process, its threads and its children still may ask of the kernel."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from latencyprobe_agent.kernel import confinement
from latencyprobe_agent.vocabulary import syscalls

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="arm64 execution")

MOST_CALLS = 80
# What one who took the agent over would like, with arguments that harm nobody; none fails with EPERM by itself.
REFUSED = {
    "setns": (-1, 0),
    "unshare": (0,),
    "process_vm_readv": (0, 0, 0, 0, 0, 0),
    "ptrace": (16, -1, 0, 0),
    "keyctl": (12345,),
    "add_key": (0, 0, 0, 0, 0),
    "personality": (0xFFFFFFFF,),
    "pidfd_getfd": (-1, 0, 0),
    "mq_unlink": (0,),
    "inotify_rm_watch": (-1, 0),
}
START = """
import ctypes, errno, os, sys
from latencyprobe_agent.kernel.confinement import keep_to_own_calls
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return errno.errorcode.get(ctypes.get_errno(), "done")
"""


def run(code: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", START + code], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_no_agent_makes_is_refused(name: str) -> None:
    attempt = f"call({syscalls.number(name)}, *{REFUSED[name]})"
    before, after = run(f"print({attempt}); keep_to_own_calls(); print({attempt})").split()
    assert (before != "EPERM", after) == (True, "EPERM")


def test_threads_and_children_are_held_to_the_same_calls() -> None:
    said = run(f"""
import subprocess, threading
keep_to_own_calls()
attempt = "call({syscalls.number("unshare")}, 0)"
thread = threading.Thread(target=lambda: print(eval(attempt), flush=True))
thread.start(); thread.join()
sys.stdout.flush()
subprocess.run([sys.executable, "-I", "-c", {START!r} + "print(" + attempt + ")"])
""")
    assert said.split() == ["EPERM", "EPERM"]


def test_no_child_gets_namespaces_of_its_own() -> None:
    """CLONE_NEWUSER; and clone3, which could ask for it unseen, is not there, so that a C library takes clone."""
    said = run(f"""
keep_to_own_calls()
print(call({syscalls.number("clone")}, 0x10000000, 0, 0, 0, 0), call({syscalls.number("clone3")}, 0, 0))
""")
    assert said.split() == ["EPERM", "ENOSYS"]


def test_what_agents_do_goes_on(tmp_path: Path) -> None:
    """Threads, sockets and TLS, SQLite and files, a process that names functions and confines itself."""
    said = run(
        """
import pathlib
folder = pathlib.Path.cwd()
keep_to_own_calls()
import selectors, socket, sqlite3, ssl, subprocess, threading, time
import numpy as np
threading.Thread(target=time.sleep, args=(0.001,)).start()
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    accepted, _ = server.accept()
    with selectors.EpollSelector() as ready, accepted:
        ready.register(accepted, selectors.EVENT_READ)
        client.sendall(b"x")
        assert ready.select(10)
os.listdir("/proc/self/fd")
ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="x")
database = sqlite3.connect(folder / "rows")
database.execute("pragma journal_mode = wal")
with database:
    database.execute("create table t (x)")
database.close()
(folder / "plan").write_bytes(b"x")
os.replace(folder / "plan", folder / "kept")
np.sort(np.random.default_rng().random(1_000_000))
child = [sys.executable, "-I", "-c", "from latencyprobe_agent.kernel.confinement import confine\\n"
         "confine([], answers=1, memory_bytes=8 << 20, descriptors=8)\\nprint('confined', flush=True)"]
print(subprocess.run(child, start_new_session=True, capture_output=True, text=True).stdout)
""",
        tmp_path,
    )
    assert said == "confined"


def test_the_list_is_short() -> None:
    assert all(syscalls.number(name) is not None for name in confinement.agent_calls())
    assert len(confinement.agent_calls()) <= MOST_CALLS
