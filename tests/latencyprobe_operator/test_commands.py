"""The command until a signal ends it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe_operator.commands import _until_signal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_work_in_an_orderly_way(number: signal.Signals) -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            steps.append("tidied up")

    asyncio.run(_until_signal(work()))
    assert steps == ["tidied up"]


def test_work_that_fails_ends_with_its_error() -> None:
    async def work() -> None:
        raise ClusterError("no usable kubeconfig")

    with pytest.raises(ClusterError, match="no usable kubeconfig"):
        asyncio.run(_until_signal(work()))


def test_cancellation_that_no_signal_asked_for_is_an_error() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_until_signal(work()))


HANGING = """
import asyncio, os, signal, threading
from collections import Counter
from latencyprobe.errors import StoreError
from latencyprobe.shared_store.settings import Settings
from latencyprobe_operator.commands import _until_signal
from latencyprobe_operator.reports import store_thread
from latencyprobe_operator.reports.shared_store import SharedStore

store_thread.CLOSING_S = 0.1

def hang(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()

def none():
    raise StoreError("there is none")
"""
IN_A_STORE = """
async def work():
    async with store_thread.StoreThread(none) as store:
        await store.run(hang)
"""
OPENING_A_STORE = """
async def work():
    async with store_thread.StoreThread(hang):
        pass
"""
ASKING_A_SHARED_STORE = """
async def work():
    await SharedStore(Settings("http://127.0.0.1:9"), none, Counter()).run(hang)
"""


@pytest.mark.parametrize("work", [IN_A_STORE, OPENING_A_STORE, ASKING_A_SHARED_STORE])
def test_signal_ends_the_process_whatever_its_threads_wait_for(work: str) -> None:
    program = f"{HANGING}{work}\nasyncio.run(_until_signal(work()))"
    ended = subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True, text=True)
    assert ("does not close within" in ended.stderr) == (work is IN_A_STORE)


UNREACHABLE = """
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: none, user: {}}]
"""


def test_clean_up_that_is_ended_by_a_signal_has_failed(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(UNREACHABLE)
    environment = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "LATENCYPROBE_NAMESPACE": "ops"}
    environment["LATENCYPROBE_AGENT_TOLERATIONS"] = "wrong, which is nothing to it"
    program = "from latencyprobe.cli import main; main()"

    with subprocess.Popen(
        [sys.executable, "-c", program, "operator", "--cleanup"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert "waiting for" in process.stderr.readline()
        process.terminate()
        process.stderr.read()

    assert process.returncode == -signal.SIGTERM
