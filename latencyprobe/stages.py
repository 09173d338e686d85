"""The stages of an RPC, each once: what it is called and means, what the store and the report write for it.

`SERVER`, `CLIENT` and `PAIR` are those of each half and of both halves joined, in the order of the arrays that hold
them; the kernel cuts halves in the same order. Durations by stage travel under the names.
"""

import enum
from typing import NamedTuple


class Stage(NamedTuple):
    """One stage. `code`: stands for it in the store; never changed, never used again. `glyph`: beside the colour,
    because a pipe and NO_COLOR have none; stages of one kind share it."""

    name: str
    code: int
    glyph: str
    colour: str
    meaning: str


RECEIVE = Stage("receive", 0, "r", "cyan", "the message arrives, from its first readable byte to its last")
READ_DELAY = Stage("read_delay", 1, "d", "yellow", "all of the message is readable, and not all is read")
PROCESS = Stage("process", 2, "P", "red", "the server has read the request and sends nothing yet")
SEND = Stage("send", 3, "s", "blue", "the message is sent, from its first send call to the end of its last")
WAIT = Stage("wait", 4, "w", "magenta", "the client has sent and nothing came back yet: network and server")
NETWORK = Stage("network", 5, "n", "magenta", "what neither host accounts for: both ways, without the hosts")
CLIENT_SEND = Stage("client_send", 6, "s", "blue", "the request is sent, as long as it arrives meanwhile")
CLIENT_READ_DELAY = Stage("client_read_delay", 7, "D", "bright_yellow", "the answer is readable, and not all is read")
SERVER_READ_DELAY = Stage("server_read_delay", 8, "d", "yellow", "the request is readable, and not all is read")
SERVER_PROCESS = Stage("server_process", 9, "P", "red", "the server has read the request and sends nothing yet")
SERVER_SEND = Stage("server_send", 10, "S", "green", "the answer is sent, from first to last send call")

SERVER = (RECEIVE, READ_DELAY, PROCESS, SEND)
CLIENT = (SEND, WAIT, RECEIVE, READ_DELAY)
PAIR = (CLIENT_SEND, NETWORK, SERVER_READ_DELAY, SERVER_PROCESS, SERVER_SEND, CLIENT_READ_DELAY)

BY_NAME = {stage.name: stage for stage in (*PAIR, *CLIENT, *SERVER)}


class StagesAs(enum.StrEnum):
    """How spans show their stages, the more the later: not at all; as events at their starts; slow and failed ones, and
    the other halves of such, as child spans, all others as events. Each span has their durations as attributes."""

    NONE = "None"
    EVENTS = "Events"
    SPANS = "Spans"


def names(stages: tuple[Stage, ...]) -> tuple[str, ...]:
    """Return the names, in order."""
    return tuple(stage.name for stage in stages)
