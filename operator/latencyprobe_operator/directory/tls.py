"""The directory's certificate and the pairing key: files that Secrets are mounted as, read again when they change.

The kubelet replaces mounted files within a minute or two.
"""

import base64
import binascii
import hashlib
import logging
import ssl
from asyncio import sslproto
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latencyprobe.errors import LatencyProbeError
from latencyprobe_operator.directory.connections import Connections

log = logging.getLogger(__name__)


class Context(ssl.SSLContext):
    """That of a server which keeps an eye on its connections."""

    connections: Connections


class Protocol(SSLProtocol):
    """TLS as asyncio has it, but what it sets aside for each connection of a server is 4 KiB, not 256, which would be
    2.6 GB of 10,000. Besides, OpenSSL keeps a third more room than it was ever handed at once."""

    def __init__(
        self, loop: Any, app: Any, context: Any, waiter: Any, server_side: bool = False, *rest: Any, **more: Any
    ) -> None:
        self._connections = context.connections if isinstance(context, Context) else None
        if server_side:
            self.max_size = 4 << 10  # type: ignore[misc]  # asyncio reads it of the instance
        super().__init__(loop, app, context, waiter, server_side, *rest, **more)

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake."""
        if self._connections is not None:
            self._connections.begun(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Any) -> None:
        """End, with or without a handshake."""
        if self._connections is not None and self._transport is not None:
            self._connections.ended(self._transport)
        super().connection_lost(exc)


setattr(sslproto, "SSLProtocol", Protocol)  # noqa: B010 - where event loops look for it; mypy refuses an assignment

KEY_BYTES = 32
FILES_S = 10.0


def pair_key(path: Path) -> bytes:
    """Return the pairing key of a file: 32 raw bytes, or their base64. Raises LatencyProbeError."""
    content = _read(path)
    if len(content) == KEY_BYTES:
        return content
    try:
        key = base64.b64decode(content.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise LatencyProbeError(f"{path}: {len(content)} bytes: put {KEY_BYTES} random bytes there, raw or as base64")
    return key


class Certificate:
    """A server-side TLS context whose certificate follows its files: new connections get the new one. `connections`:
    learns of each."""

    def __init__(self, folder: Path, connections: Connections | None = None) -> None:
        self._cert, self._key = folder / "tls.crt", folder / "tls.key"
        self.context = Context(ssl.PROTOCOL_TLS_SERVER)
        self.context.connections = Connections() if connections is None else connections
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._digest = b""
        self.refresh()

    def refresh(self) -> bool:
        """Load the files if they changed; returns whether they did. Raises LatencyProbeError for unusable ones."""
        digest = hashlib.sha256(_read(self._cert) + _read(self._key)).digest()
        if digest == self._digest:
            return False
        try:
            self.context.load_cert_chain(self._cert, self._key)
        except (ssl.SSLError, OSError) as error:
            raise LatencyProbeError(f"{self._cert}: not a certificate that fits {self._key.name}: {error}") from error
        self._digest = digest
        return True


async def follow(certificate: Certificate, pair_key_file: Path, use_pair_key: Callable[[bytes], None]) -> None:
    """Use the files as they are now. Raises LatencyProbeError for unusable ones."""
    if certificate.refresh():
        log.info("the directory has a new certificate")
    use_pair_key(pair_key(pair_key_file))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LatencyProbeError(f"{path}: {error.strerror}: mount the chart's Secret there") from error
