"""Puts lines together from the pieces in which a connection brings them. Bytes in, bytes out."""


class LineTooLong(ValueError):  # noqa: N818 - the field's term
    """A line is longer than its reader takes."""


class Lines:
    """The lines of one stream; none may have more than `most` bytes. A byte of a long line is copied as often as
    one of a short one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece, without their newlines. Raises LineTooLong, and keeps nothing of it,
        once one is too long."""
        *ends, rest = piece.split(b"\n")
        lines = []
        for end in ends:
            self._continue(end)
            lines.append(bytes(self._begun))
            self._begun = bytearray()
        self._continue(rest)
        return lines

    def _continue(self, more: bytes) -> None:
        if len(self._begun) + len(more) > self._most:
            self._begun = bytearray()
            raise LineTooLong(f"a line of more than {self._most:,} bytes")
        self._begun += more
