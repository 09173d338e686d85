"""Containers that follow each other under one instance are told one after the other.

A container that is started again has another id and the same instance. Prometheus takes job and instance for all of a
resource, and refuses a request with two values of one series. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable

from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.vocabulary import conventions as names

_IDENTITY = (names.SERVICE_NAMESPACE, names.SERVICE_NAME, names.SERVICE_INSTANCE_ID)


def successors(told: Iterable[int], resources: Resources) -> set[int]:
    """Return the owners that wait for the next export: one of their instance has ended and is told in this one.

    `told`: owners that have something to tell. Several that live are told at once: somebody called them alike.
    """
    of_instance: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for owner in sorted(told):
        attributes = resources.attributes(owner)
        of_instance[tuple(attributes.get(name) for name in _IDENTITY)].append(owner)
    waiting: set[int] = set()
    for owners in of_instance.values():
        if len(owners) > 1 and (ended := next(filter(resources.ended, owners), None)) is not None:
            waiting.update(owner for owner in owners if owner != ended)
    return waiting
