"""The Lease `latencyprobe-operator`: who may write. It gates the operator's start and stops the process when lost.

One replica is normal; the Lease makes two harmless (a node that was cut off). By hand and not
`kubernetes.aio.leaderelection`, since that one waits up to five minutes in a hung request, longer than the Lease
lasts, and reads the wall clock. Times here are the monotonic clock; another's Lease counts from when *we* saw it
change, as in client-go, so clocks of different nodes never meet. Source: client-go, tools/leaderelection.
"""

import asyncio
import datetime
import logging
import time
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import Api, ApiError

log = logging.getLogger(__name__)

NAME = "latencyprobe-operator"
DURATION_S = 15
RENEW_DEADLINE_S = 10.0  # we stop writing 5 s before anybody else may start
RETRY_S = 2.0


class Lease:
    """Our claim on the Lease. `identity` must differ between processes."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        identity: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self._api = api
        self._namespace = namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._clock = clock
        self._seen: tuple[dict[str, Any] | None, float] = (None, 0.0)
        self._renewed = 0.0

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while True:
            if await self._attempt():
                break
            await asyncio.sleep(RETRY_S)
        log.info("lease %s is ours (%s)", NAME, self.identity)

    async def hold(self) -> NoReturn:
        """Renew until cancelled. Raises ClusterError when it is lost."""
        while (self._seen[0] or {}).get("holderIdentity") == self.identity:
            try:
                async with asyncio.timeout(RENEW_DEADLINE_S - (self._clock() - self._renewed)):
                    await asyncio.sleep(RETRY_S)
                    await self._attempt()
            except TimeoutError:
                break
        log.error("lease %s is lost", NAME)
        raise ClusterError(f"lease {NAME} is lost: ending, so that only its holder writes")

    async def release(self) -> None:
        """Let the next one in at once."""
        try:
            lease = await self._read()
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                await self._write(lease, holder="", duration_s=1)
        except ClusterError as error:
            log.warning("lease %s could not be released, it runs out by itself: %s", NAME, error)

    async def _attempt(self) -> bool:
        """Take or renew the Lease, once, within `RETRY_S`; returns whether it is ours now."""
        began = self._clock()
        try:
            async with asyncio.timeout(RETRY_S):
                lease = await self._read()
                if lease is None:
                    await self._create()
                elif self._free(lease["spec"]):
                    await self._write(lease, holder=self.identity, duration_s=DURATION_S)
                else:
                    return False
        except (ClusterError, TimeoutError) as error:
            log.warning("lease %s: %s", NAME, str(error) or "no answer in time")
            return False
        self._renewed = began
        return True

    def _free(self, spec: dict[str, Any]) -> bool:
        """Return whether we may write: it is ours, nobody's, or ran out."""
        if spec != self._seen[0]:
            self._seen = (spec, self._clock())
        holder = spec.get("holderIdentity") or ""
        ran_out = self._clock() - self._seen[1] > spec.get("leaseDurationSeconds", DURATION_S)
        return holder in ("", self.identity) or ran_out

    async def _read(self) -> dict[str, Any] | None:
        try:
            body = await self._api.call("GET", f"{self._path}/{NAME}", timeout_s=RETRY_S)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        lease: dict[str, Any] = msgspec.json.decode(body)
        lease.setdefault("spec", {})
        return lease

    async def _create(self) -> None:
        spec = self._spec({}, self.identity, DURATION_S)
        metadata = {"name": NAME, "namespace": self._namespace}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        await self._api.call("POST", self._path, body=body, timeout_s=RETRY_S)
        self._seen = (spec, self._clock())

    async def _write(self, lease: dict[str, Any], *, holder: str, duration_s: int) -> None:
        """Replace the Lease; the resource version in it makes a concurrent write fail with 409."""
        spec = self._spec(lease["spec"], holder, duration_s)
        await self._api.call("PUT", f"{self._path}/{NAME}", body={**lease, "spec": spec}, timeout_s=RETRY_S)
        self._seen = (spec, self._clock())

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
