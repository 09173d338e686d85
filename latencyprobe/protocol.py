"""How the RPCs on a connection are told from each other."""

import enum


class Protocol(enum.StrEnum):
    """How the RPCs on a connection are told from each other: by whose turn it is, or as streams of HTTP/2."""

    TURNS = "Turns"
    HTTP2 = "HTTP2"
