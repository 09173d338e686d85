"""HTTPS client of the operator's directory (docs/design/directory.md, "Calls"); the only module that speaks it.

It streams the node's plan, asks who owns an address, and posts status, SLI counts and what the remote join sends. The
bearer token is read again at each request because the kubelet rotates it, the CA when its file changes. Every failure
is a DirectoryError that names what is wrong and what to do; a token never appears in one.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec
import urllib3

from latencyprobe import wire
from latencyprobe.errors import DirectoryError, innermost
from latencyprobe.lines import Lines, LineTooLong
from latencyprobe.plan import (
    AgentStatus,
    Identity,
    IdentityAnswer,
    IdentityRequest,
    RemoteJoinAnswer,
    RemoteJoinMessage,
)
from latencyprobe.plan_stream import PlanLine
from latencyprobe.sli import SliAnswer, SliBatch, SliRow
from latencyprobe_agent.directory.returning import Returning

T = TypeVar("T")

logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it warns of each connection that is not kept

_MAX_BODY_BYTES = 32 << 20  # a plan of 250 pods with resources is about 500 kB
_HEARTBEATS_LATE_S = 45.0  # three heartbeats of the plan stream
_TURN_S = 1.0  # for so long a post waits for another's connection; then it makes its own, and ends it
_TIMEOUT = urllib3.Timeout(connect=5.0, read=10.0)
_REMEDIES = {
    401: "the token's audience must be latencyprobe-directory",
    403: "the token must be of the agents' account, on this node",
}


class DocumentError(DirectoryError):
    """The directory will never take this document: it is dropped and counted."""


class Directory:
    """One directory, asked on behalf of one node. Safe to use from several threads. `returning`: when, once it was
    lost; `status_s`: how often it wants the status, 0: it does not say."""

    def __init__(self, url: str, node: str, *, token_file: Path, ca_file: Path) -> None:
        self.url = url.rstrip("/")
        self.returning = Returning(node)
        self.status_s = 0.0
        self._node = f"/v1/nodes/{quote(node, safe='')}"
        self._token_file = token_file
        self._ca_file = ca_file
        self._lock = threading.Lock()
        self._posting = threading.Lock()
        self._pool: urllib3.PoolManager | None = None
        self._ca_version: tuple[int, int] = (0, 0)

    def plans(self, *, changes: bool = True) -> Iterator[PlanLine]:
        """Open the plan stream and yield its lines (heartbeats included) until it ends. `changes`: of the plan before
        may come instead of a plan. Raises DirectoryError."""
        timeout = urllib3.Timeout(connect=5.0, read=_HEARTBEATS_LATE_S)
        more = {wire.CHANGES_HEADER: wire.CHANGES} if changes else {}
        response = self._open("GET", f"{self._node}/plan", timeout=timeout, more=more)
        lines = Lines(_MAX_BODY_BYTES)
        self.returning.opened()
        try:
            for piece in response.stream():
                for document in lines.add(piece):
                    read = _decode(document, PlanLine, self.url)
                    self.returning.told(read.return_s)
                    self.status_s = read.status_s
                    yield read
        except LineTooLong as error:
            raise DirectoryError(f"{self.url}: a plan is refused: {error}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise DirectoryError(f"{self.url}: the plan stream broke: {innermost(error)}") from error
        finally:
            self.returning.lost()
            response.close()

    def identities(self, addresses: tuple[str, ...]) -> IdentityAnswer:
        """Ask who owns up to `wire.MAX_ADDRESSES` addresses."""
        body = self._post("/v1/identities", IdentityRequest(addresses))
        return _decode(body, IdentityAnswer, self.url)

    def remote_join(self, message: RemoteJoinMessage) -> RemoteJoinAnswer:
        """Ask for server halves, and hand over what was asked of this node."""
        return _decode(self._post("/v1/remote-join", message), RemoteJoinAnswer, self.url)

    def status(self, status: AgentStatus) -> None:
        """Post the status of this node's agent."""
        self._post(f"{self._node}/status", status)

    def sli(self, batch: SliBatch) -> SliAnswer:
        """Hand over SLI counts. A gap (409) is an answer too: `expected` is not the batch's sequence + 1 then."""
        return _decode(self._post(f"{self._node}/sli", batch), SliAnswer, self.url)

    def _post(self, path: str, body: msgspec.Struct) -> bytes:
        if why := self.returning.held():
            raise DirectoryError(f"{self.url}: {why}")
        in_turn = self._posting.acquire(timeout=_TURN_S)
        try:
            return self._posted(path, body)
        finally:
            if in_turn:
                self._posting.release()

    def _posted(self, path: str, body: msgspec.Struct) -> bytes:
        try:
            response = self._open("POST", path, timeout=_TIMEOUT, body=msgspec.json.encode(body))
        except DocumentError:
            raise
        except DirectoryError as error:
            self.returning.failed(str(error).removeprefix(f"{self.url}: "))
            raise
        try:
            return response.read(_MAX_BODY_BYTES)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise DirectoryError(f"{self.url}: the answer broke off: {innermost(error)}") from error
        finally:
            response.release_conn()

    def _open(
        self,
        method: str,
        path: str,
        *,
        timeout: urllib3.Timeout,
        body: bytes | None = None,
        more: Mapping[str, str] = {},  # headers
    ) -> urllib3.BaseHTTPResponse:
        headers = {
            "authorization": f"Bearer {self._token()}",
            "content-type": "application/json",
            wire.HEADER: str(wire.VERSION),
            **more,
        }
        try:
            response = self._connections().request(
                method,
                self.url + path,
                body=body,
                headers=headers,
                timeout=timeout,
                preload_content=False,
                redirect=False,
                retries=False,
            )
        except urllib3.exceptions.SSLError as error:
            raise DirectoryError(
                f"{self.url}: TLS failed: {innermost(error)}: does {self._ca_file} hold the CA of the directory?"
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise DirectoryError(f"{self.url}: unreachable: {innermost(error)}") from error
        if response.status in (200, 202, 204, 409):
            return response
        try:
            why = _reason(response.read(1024))
        except (urllib3.exceptions.HTTPError, OSError):  # that it refuses is known; why broke off
            why = ""
        why = why or response.reason or "no reason given"
        response.close()
        remedy = f": {_REMEDIES[response.status]}" if response.status in _REMEDIES else ""
        kind = DocumentError if response.status in (400, 413) else DirectoryError
        raise kind(
            f"{self.url}: {method} {path}: {response.status}: {why}{remedy}",
            retry_after_s=_retry_after_s(response),
        )

    def _token(self) -> str:
        try:
            return self._token_file.read_text().strip()
        except OSError as error:
            raise DirectoryError(
                f"{self._token_file}: {error.strerror}: mount the projected service account token here"
            ) from error

    def _connections(self) -> urllib3.PoolManager:
        try:
            stat = self._ca_file.stat()
        except OSError as error:
            raise DirectoryError(f"{self._ca_file}: {error.strerror}: mount the directory's CA here") from error
        version = (stat.st_mtime_ns, stat.st_ino)
        with self._lock:
            if self._pool is None or version != self._ca_version:
                self._pool = urllib3.PoolManager(maxsize=1, ca_certs=str(self._ca_file), cert_reqs="CERT_REQUIRED")
                self._ca_version = version
            return self._pool


class FakeDirectory(Directory):
    """`Directory` for tests, without a network: answers at once, and keeps what it is told.

    `error`: raised by every call while it is set. `lines`: the plan stream begins with them, `whole`: one of whole
    plans does. `owners`, `generation`, `valid_s`, `told`: of its identities; `asked`: for which addresses. `refused`:
    keys of remote joins, with their reasons. `expected`: the number of the next batch; only the rows of that one are
    kept; `next_upload_s`: when it wants more.
    """

    def __init__(self) -> None:
        self.url = "https://directory.fake"
        self.returning = Returning("n1")
        self.status_s = 0.0
        self.error: Exception | None = None
        self.lines: list[PlanLine] = []
        self.whole: list[PlanLine] = []
        self.owners: dict[str, Identity] = {}
        self.generation, self.valid_s, self.told = 1, 15.0, False
        self.asked: list[tuple[str, ...]] = []
        self.refused: dict[str, str] = {}
        self.messages: list[RemoteJoinMessage] = []
        self.statuses: list[AgentStatus] = []
        self.expected, self.next_upload_s = 0, 0.0
        self.batches: list[SliBatch] = []
        self.rows: list[SliRow] = []

    def plans(self, *, changes: bool = True) -> Iterator[PlanLine]:
        """Yield `lines`, without changes `whole`, then heartbeats without an end."""
        self._answer()
        yield from self.lines if changes else self.whole
        while True:
            time.sleep(0.01)
            yield PlanLine()

    def identities(self, addresses: tuple[str, ...]) -> IdentityAnswer:
        """Answer from `owners`, with empty fields for an address that is not there."""
        self.asked.append(addresses)
        self._answer()
        found = tuple(self.owners.get(address, Identity(address)) for address in addresses)
        return IdentityAnswer(found, self.generation, self.valid_s, self.told)

    def remote_join(self, message: RemoteJoinMessage) -> RemoteJoinAnswer:
        """Keep the message and answer with `refused`."""
        self._answer()
        self.messages.append(message)
        return RemoteJoinAnswer(self.refused)

    def status(self, status: AgentStatus) -> None:
        """Keep the status."""
        self._answer()
        self.statuses.append(status)

    def sli(self, batch: SliBatch) -> SliAnswer:
        """Keep the batch, and its rows if it is the expected one."""
        self.batches.append(batch)
        self._answer()
        taken = batch.sequence == self.expected
        self.expected += taken
        answer = SliAnswer(self.expected, self.next_upload_s)
        self.rows += batch.rows if taken else ()  # last: who sees them may change `expected`
        return answer

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error


def _decode(body: bytes, kind: type[T], url: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except wire.UNREADABLE as error:
        raise DirectoryError(
            f"{url}: not a {kind.__name__}: {error}: are agent and operator of one version?"
        ) from error


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float:
    """Return for how long a directory that is busy wants to be left alone; 0: it does not say so in seconds."""
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if response.status in (429, 503) and text.isdecimal() else 0.0


def _reason(body: bytes) -> str:
    """Return the directory's `{"error": ...}`, or the text itself where something else answered."""
    try:
        return str(msgspec.json.decode(body)["error"])
    except (*wire.UNREADABLE, KeyError, TypeError):
        return body.decode(errors="replace").strip()
