"""Asks a server by the HTTP API of Prometheus: bounded in time and size, and what goes wrong is said with its remedy.

Calls come from one thread at a time. Redirects are not followed: the token is for one server.
"""

import re
import time
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import urlencode

import msgspec
import urllib3

from latencyprobe.errors import StoreError, innermost
from latencyprobe.shared_store import answers
from latencyprobe.shared_store.settings import PREFIX, Settings
from latencyprobe.wire import UNREADABLE

FAILED = "SharedStoreFailed"  # reason of StoreError
MAX_BYTES = 32 << 20  # of an answer: 256 objectives with a histogram of 1,000 buckets each are 10
_CHUNK = 1 << 16
_CONNECT_S = 5.0
_SHOWN = 200
_OF_LIBRARIES = re.compile(r"\[SSL: \w+\] | \(_ssl\.c:\d+\)")
_SETTINGS = f"{PREFIX}TOKEN_FILE and {PREFIX}HEADERS (in the chart slo.prometheus.tokenSecret and .headers)"
_PATHS = "Mimir's ends in /prometheus, that of a VictoriaMetrics cluster in /select/0/prometheus"
_REMEDIES = {
    401: f"give it a token or a tenant by {_SETTINGS}",
    403: f"give it a token or a tenant by {_SETTINGS} that may read there",
    404: f"there is no API of Prometheus: give the URL that /api/v1 follows; {_PATHS}",
    405: f"there is no API of Prometheus: give the URL that /api/v1 follows; {_PATHS}",
    422: "the server cannot answer that: look at its limits, for example --query.max-samples",
    429: "it is asked too much: raise its limits of queries",
    502: "look at the server, or the proxy before it",
    503: "look at the server: it is starting, overloaded, or too slow",
    504: "look at the server: it is too slow",
}


class Client:
    """One server. Raises StoreError (`FAILED`) in each call that has no answer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        timeout = urllib3.Timeout(connect=min(_CONNECT_S, settings.timeout_s), read=settings.timeout_s)
        ca_file = str(settings.ca_file) if settings.ca_file else None
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False, ca_certs=ca_file)

    @property
    def url(self) -> str:
        """The server's."""
        return self._settings.url

    def at(self, expression: str, at: int) -> list[answers.Series]:
        """Return what an expression is at a moment (Unix s)."""
        return self._ask("query", {"query": expression, "time": str(at)})

    def over(self, expression: str, first: int, last: int, step_s: int) -> list[answers.Series]:
        """Return what it is at each step from `first` to `last` (Unix s)."""
        span = {"start": str(first), "end": str(last), "step": str(step_s)}
        return self._ask("query_range", {"query": expression, **span})

    def _ask(self, what: str, fields: dict[str, str]) -> list[answers.Series]:
        # What only some know: else VictoriaMetrics moves the steps, and it and Thanos answer with what they reach.
        whole = {"nocache": "1", "deny_partial_response": "1", "partial_response": "false"}
        body = urlencode({**fields, **whole, "timeout": f"{self._settings.timeout_s:g}s"})
        try:
            response = self._pool.request(
                *("POST", f"{self.url}/api/v1/{what}"),
                body=body,
                headers=self._headers(),
                redirect=False,
                preload_content=False,
            )
            try:
                answer = self._read(response)
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            remedy = "is it up, and reached from here under this URL?"
            if isinstance(getattr(error, "reason", error), urllib3.exceptions.SSLError):
                remedy = f"give the authority of its certificate by {PREFIX}CA_FILE (slo.prometheus.caConfigMap)"
            self._fail(f"no answer: {_plain(error)}: {remedy}", error)
        return self._understood(response.status, response.headers, answer)

    def _headers(self) -> dict[str, str]:
        form = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        headers = {**form, "User-Agent": "latencyprobe", **self._settings.headers}
        if file := self._settings.token_file:
            try:
                token = file.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                self._fail(f"{PREFIX}TOKEN_FILE: {error}", error)
            if not token or not (token.isascii() and token.isprintable()):
                self._fail(f"{PREFIX}TOKEN_FILE: {file} holds no token: write it there, in one line")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        until, body = time.monotonic() + self._settings.timeout_s, bytearray()
        while chunk := response.read1(_CHUNK):
            body += chunk
            if len(body) > MAX_BYTES:
                self._fail(f"its answer is longer than {MAX_BYTES >> 20} MiB: is that URL a Prometheus'?")
            if time.monotonic() > until:
                self._fail(f"its answer took longer than {self._settings.timeout_s:g} s: raise {PREFIX}TIMEOUT")
        return bytes(body)

    def _understood(self, status: int, headers: Mapping[str, str], body: bytes) -> list[answers.Series]:
        try:
            answer = msgspec.json.decode(body, type=answers.Answer)
        except UNREADABLE as error:
            if status in _REMEDIES:
                self._fail(f"{status}: {_REMEDIES[status]}", error)
            if 300 <= status < 400:
                self._fail(f"{status}: it sends on to {headers.get('Location', '')[:_SHOWN]!r}: give that URL", error)
            kind = headers.get("Content-Type", "")[:_SHOWN]
            what = "a web page" if "html" in kind else f"{kind or 'something'} that is no answer of a Prometheus"
            self._fail(f"{status} with {what}: give the URL that /api/v1 follows; {_PATHS}", error)
        if status != 200 or answer.status != "success":
            said = answer.error[:_SHOWN] or answer.error_type or "no reason"
            self._fail(f"{status}: {said}" + (f": {_REMEDIES[status]}" if status in _REMEDIES else ""))
        if answer.is_partial:
            self._fail("it answers with a part of its data: look at its storage nodes")
        try:
            return answers.series(answer)
        except ValueError as error:
            self._fail(f"{error}: is that URL a Prometheus'?", error)

    def _fail(self, problem: str, cause: Exception | None = None) -> NoReturn:
        raise StoreError(f"{self.url}: {problem}", FAILED) from cause


def _plain(error: Exception) -> str:
    """Return what is the matter in a few words, without the names and places of libraries."""
    said = _OF_LIBRARIES.sub("", innermost(error)).strip()
    return f"{said[:1].lower()}{said[1:_SHOWN]}"
