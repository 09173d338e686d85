"""Take programs away from a signal that is attached: no skipping by the kernel can be worse."""

from collections.abc import Iterator
from contextlib import contextmanager

from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.loader import event_of


def take_away(programs: Attached, *events: str) -> None:
    """Run the programs of these events no more. Raises KeyError if one has none."""
    for event in events:
        for link in programs._loaded.links.pop(event):
            link.close()


@contextmanager
def without(programs: Attached, event: str) -> Iterator[None]:
    """Run the programs of this event not while the block runs."""
    take_away(programs, event)
    try:
        yield
    finally:
        mine = [one for one in programs._loaded.programs if event_of(one) == (event, programs.variants[event])]
        programs._loaded.links[event] = [one.attach() for one in mine]
