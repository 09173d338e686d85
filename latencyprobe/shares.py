"""How room is shared out by name, so that nobody takes the room of the others. Pure."""

from collections.abc import Mapping


def shares(needs: Mapping[str, int], room: int) -> dict[str, int]:
    """Share `room` out: who needs no more than an equal share has all of it, and the others what that leaves."""
    given: dict[str, int] = {}
    for name in sorted(needs, key=lambda name: (needs[name], name)):
        given[name] = min(needs[name], room // (len(needs) - len(given)))
        room -= given[name]
    return given
