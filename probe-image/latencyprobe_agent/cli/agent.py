"""The command `agent`: the DaemonSet's entry. What it imports takes memory on every node, and is what it needs."""

import gc
import logging
import os

import click

from latencyprobe import logs
from latencyprobe.ending import ending
from latencyprobe_agent import config as settings
from latencyprobe_agent.cli.audience import Export, audience
from latencyprobe_agent.config import ConfigError
from latencyprobe_agent.directory.control import DirectoryControl
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.kernel.confinement import keep_to_own_calls
from latencyprobe_agent.kernel.libbpf import one_arena
from latencyprobe_agent.loop.agent import Agent
from latencyprobe_agent.loop.crashes import Crashes
from latencyprobe_agent.telemetry.endpoints import delta_requested, endpoints


@click.command(
    epilog="""\b
The DaemonSet's entry. Settings come from the environment: LATENCYPROBE_DIRECTORY and LATENCYPROBE_NODE,
and those that latencyprobe_agent/config.py lists. Logs are JSON lines on stderr.
"""
)
def agent() -> None:
    """Measure the pods of this node, under the operator."""
    config = settings.from_environment()
    if not config.directory:
        raise ConfigError("LATENCYPROBE_DIRECTORY: not set: the chart sets it; without a cluster: latencyprobe run")
    logs.setup()
    one_arena()
    try:
        keep_to_own_calls()
    except OSError as error:  # no reason not to measure: the pod has the runtime's own filter
        logging.getLogger(__name__).warning("system calls are not held to the agent's own: %s", error)
    try:
        exported = endpoints(os.environ)
        export = Export(exported, delta_requested(os.environ, exported))
    except ConfigError as error:  # a wrong variable must not end measuring: counts reach the operator without it
        logging.getLogger(__name__).error("%s: nothing is exported", error)
        export = Export()
    with Crashes(config.state_dir / "crashes") as crashes:
        guard = Guard()
        control = DirectoryControl(config, guard)
        listeners = audience(config, control, Export() if crashes.safe_mode else export, guard=guard)
        node = Agent(config, control, listeners, safe_mode=lambda: crashes.safe_mode, guard=guard)
        server = node.health.serve(config.health_port) if config.health_port else None
        gc.freeze()  # what is here now stays: a pass of the collector over it takes 16 ms, in which nothing is drained
        with ending(node.stop):
            node.run()
        if server:
            server.shutdown()
