"""The Lease `latencyprobe-operator`: who may write. A thread of its own keeps it, so nothing else delays its renewal.

One replica is normal; the Lease makes two harmless (a node that was cut off). By hand and not
`kubernetes.aio.leaderelection`, since that one waits up to five minutes in a hung request, longer than the Lease
lasts, and reads the wall clock. Times here are of the clock since boot, which goes on while a host sleeps; another's
Lease counts from when *we* saw it change, as in client-go, so clocks of different nodes never meet. Source: client-go,
tools/leaderelection.
"""

import asyncio
import datetime
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Self

import msgspec

from latencyprobe.errors import ClusterError, LatencyProbeError
from latencyprobe_operator.cluster.api import Api, ApiError
from latencyprobe_operator.cluster.own_loop import OwnLoop

log = logging.getLogger(__name__)

NAME = "latencyprobe-operator"
DURATION_S = 15
RENEW_DEADLINE_S = 10.0  # we stop writing 5 s before anybody else may start
RETRY_S = 2.0
CALL_S = 2.0  # an attempt is two: of the slowest one begins each 4 + 2 s, and is done before the last one's 10 s end
LOOK_S = 1.0  # whoever waits: with one attempt that gets no answer the next one still writes within 20 s
_POLL_S = 0.2
_RELEASE_TRIES = 3
_NOT_THERE = (
    "it is not there, and the chart makes it: apply the chart again; Argo CD leaves Leases out unless you take them"
    " out of its resource.exclusions (docs/cluster.md)"
)


def boot_s() -> float:
    """Return s since the host's boot, with those that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Claim:
    """What we know of the Lease, and each attempt to hold it. `identity` must differ between processes; `term`: which
    of our times as its holder this is, 0 while it is not ours. A time ends when anybody else was seen to have had it,
    not when the API server is away. Written by one thread, read by all."""

    def __init__(self, namespace: str, identity: str, *, clock: Callable[[], float] = boot_s) -> None:
        self.identity = identity
        self.term = 0
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._clock = clock
        self._terms = 0
        self._seen: tuple[dict[str, Any] | None, float] = (None, 0.0)
        self._renewed = 0.0
        self._transitions: object = None  # how often the Lease had changed hands when we wrote it last
        self._problem, self._held_back = "", False  # what was logged

    def left_s(self, term: int) -> float:
        """Return for how long it is certain that nobody else may write, in a time of ours; not above 0: not now."""
        return self._renewed + RENEW_DEADLINE_S - self._clock() if term and term == self.term else 0.0

    async def attempt(self, api: Api) -> None:
        """Take or renew the Lease, once: a look and a write, each within `CALL_S`. Our time counts from its beginning,
        so it is no longer for one that took long."""
        began = self._clock()
        try:
            async with asyncio.timeout(2 * CALL_S):  # whatever else hangs, a plugin for credentials for instance
                lease = await self._read(api)
                if lease is None:
                    await self._create(api)
                elif self._free(lease["spec"]):
                    await self._write(api, lease, holder=self.identity, duration_s=DURATION_S)
                else:
                    return
        except (ClusterError, TimeoutError) as error:
            self._failed(str(error) or "no answer in time")
            return
        self._renewed = began
        if not self.term:
            self._terms += 1
            self.term = self._terms
            log.info("lease %s is ours (%s)", NAME, self.identity)
        elif self._held_back:
            log.info("lease %s is ours again: writing goes on", NAME)
        self._problem, self._held_back = "", False

    async def release(self, api: Api) -> None:
        """Let the next one in at once. A try or two more than one: an API server that stalls for seconds is common, and
        the next one would wait for the Lease to run out."""
        self.term = 0
        problem: ClusterError | None = None
        for _ in range(_RELEASE_TRIES):
            try:
                lease = await self._read(api)
                if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                    await self._write(api, lease, holder="", duration_s=1)
                return
            except ClusterError as error:
                problem = error
                await asyncio.sleep(_POLL_S)
        log.warning("lease %s could not be released, it runs out by itself: %s", NAME, problem)

    def _free(self, spec: dict[str, Any]) -> bool:
        """Return whether we may write: it is ours, nobody's, or ran out."""
        if spec != self._seen[0]:
            self._seen = (spec, self._clock())
        holder = spec.get("holderIdentity") or ""
        if self.term and (holder != self.identity or spec.get("leaseTransitions") != self._transitions):
            log.error("lease %s is lost: %s has had it", NAME, holder or "another process")
            self.term = 0
        ran_out = self._clock() - self._seen[1] > spec.get("leaseDurationSeconds", DURATION_S)
        return holder in ("", self.identity) or ran_out

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("lease %s: %s", NAME, problem)
        self._problem = problem
        if self.term and self.left_s(self.term) <= 0 and not self._held_back:
            log.error("lease %s is not renewed: nothing is written until it is; agents are answered", NAME)
            self._held_back = True

    async def _read(self, api: Api) -> dict[str, Any] | None:
        try:
            body = await api.call("GET", f"{self._path}/{NAME}", timeout_s=CALL_S)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        lease: dict[str, Any] = msgspec.json.decode(body)
        lease.setdefault("spec", {})
        return lease

    async def _create(self, api: Api) -> None:
        spec = self._spec({}, self.identity, DURATION_S)
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}, "spec": spec}
        try:
            await api.call("POST", self._path, body=body, timeout_s=CALL_S)
        except ApiError as error:
            if error.status != 403:
                raise
            raise ClusterError(f"{error}; {_NOT_THERE}") from error
        self._wrote(spec)

    async def _write(self, api: Api, lease: dict[str, Any], *, holder: str, duration_s: int) -> None:
        """Replace the Lease; the resource version in it makes a concurrent write fail with 409."""
        spec = self._spec(lease["spec"], holder, duration_s)
        await api.call("PUT", f"{self._path}/{NAME}", body={**lease, "spec": spec}, timeout_s=CALL_S)
        self._wrote(spec)

    def _wrote(self, spec: dict[str, Any]) -> None:
        self._seen, self._transitions = (spec, self._clock()), spec["leaseTransitions"]

    def _spec(self, old: dict[str, Any], holder: str, duration_s: int) -> dict[str, Any]:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        same = old.get("holderIdentity") == holder
        return {
            **old,
            "holderIdentity": holder,
            "leaseDurationSeconds": duration_s,
            "acquireTime": old.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": old.get("leaseTransitions", 0) + (0 if same or not holder else 1),
        }


class Term:
    """One time as the holder: from when the Lease is ours until anybody else was seen to have had it. It goes on while
    the API server is away, but then nothing may be written."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._number = -1

    def left_s(self) -> float:
        """Return for how long it is certain that nobody else may write; not above 0: do not write now."""
        return self._claim.left_s(self._number)

    async def begin(self) -> None:
        """Wait until the Lease is ours."""
        await _until(lambda: self._claim.left_s(self._claim.term) > 0)
        self._number = self._claim.term

    async def over(self) -> None:
        """Wait until another process has had the Lease."""
        await _until(lambda: self._claim.term != self._number)

    async def may_write(self) -> None:
        """Wait until we may write."""
        await _until(lambda: self.left_s() > 0)


class Lease:
    """Keeps the claim: `async with` begins to, and lets the next one in at the end. `connect`: to the API server, as
    the thread needs a connection of its own."""

    def __init__(self, connect: Callable[[], Awaitable[Api]], claim: Claim) -> None:
        self._connect = connect
        self._claim = claim
        self._thread = OwnLoop("lease", self._keep)

    async def __aenter__(self) -> Self:
        await self._thread.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._thread.__aexit__(*error)

    def term(self) -> Term:
        """Return our next time as the holder; wait for it with `begin`."""
        return Term(self._claim)

    async def _keep(self) -> NoReturn:
        while True:
            try:
                async with await self._connect() as api:
                    try:
                        while True:
                            await self._claim.attempt(api)
                            await asyncio.sleep(RETRY_S if self._claim.term else LOOK_S)
                    finally:
                        await self._claim.release(api)
            except LatencyProbeError as error:
                log.error("lease %s: %s", NAME, error)
            except Exception:
                log.exception("lease %s", NAME)
            await asyncio.sleep(RETRY_S)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what another thread knows, and what time alone changes
        await asyncio.sleep(_POLL_S)
