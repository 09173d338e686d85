"""`latencyprobe operator [--cleanup]`: the Deployment's entry, and the clean-up after uninstalling.

An entry point of the group `latencyprobe.commands`. What the operator imports is imported only when it runs.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import click

from latencyprobe import logs


@click.command()
@click.option("--cleanup", is_flag=True, help="After uninstalling: take the node labels away, wait until all is gone.")
@click.option(
    "--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True
)
def operator(cleanup: bool, log_level: str) -> None:
    """Run the operator: plans, node labels, reports, and the agents' directory.

    \b
    Runs in the cluster with its service account, or by hand with KUBECONFIG:
      LATENCYPROBE_NAMESPACE=latencyprobe latencyprobe operator --cleanup
    """
    from latencyprobe_operator.config import Config, Namespaces  # noqa: PLC0415 - 50 MB that other commands do not need

    read_deep_json()
    logs.setup(log_level)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelName(log_level.upper())))
    if cleanup:
        from latencyprobe_operator import cleanup as cleaning  # noqa: PLC0415 - as above

        # a signal ends it at once: its Job must not count half of it as done
        asyncio.run(cleaning.run(Namespaces.from_environment()))
    else:
        from latencyprobe_operator.app import run  # noqa: PLC0415 - as above

        asyncio.run(_until_signal(run(Config.from_environment())))


def read_deep_json() -> None:
    """Let kopf read what an API server takes (cluster/nesting.py); before Python 3.12 each level counts as a call."""
    from latencyprobe_operator.cluster.nesting import API_LEVELS  # noqa: PLC0415 - as above

    sys.setrecursionlimit(API_LEVELS + 2_000)


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run until done, or until SIGTERM or SIGINT, which end it in an orderly way."""
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        task.cancel()

    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not asked:
            raise
