"""The connection to the Kubernetes API server: one client and pool per process, raw JSON in and out.

`cluster.py` (single calls), `informer.py` (list and watch) and `election.py` (Lease) share one `Api`. Credentials,
TLS, token rotation and Retry-After come from `kubernetes.aio`; its models are not used, since they cost more memory
and time than the calls themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

from latencyprobe_operator import aio  # isort: skip  # first: keeps the synchronous client out
import aiohttp
import msgspec
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from latencyprobe.errors import ClusterError

assert aio
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML


class ApiError(ClusterError):
    """The API server answered with an error. `status`: HTTP status; `retry_after_s`: what it asks for, or 0."""

    def __init__(self, status: int, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class Api:
    """Requests to the API server. `async with Api.connect() as api`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    async def connect(cls) -> Self:
        """Use the pod's service account, else the user's kubeconfig. Raises ClusterError without either."""
        configuration = Configuration()
        try:
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException:
                await config.load_kube_config(client_configuration=configuration)
        except config.ConfigException as error:
            raise ClusterError(f"no service account and no usable kubeconfig ({error}): set KUBECONFIG") from error
        client = ApiClient(configuration)
        client.user_agent = "latencyprobe-operator"
        return cls(client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """Return the body of a successful answer. Raises ApiError for another, ClusterError when there is none."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_TIMEOUT_S, timeout_s))
        async with self.stream(method, path, query=query, body=body, content_type=content_type, timeout=timeout) as r:
            return await r.read()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own timeout also frees the connection
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give the response of a request, unread. Raises as `call`, also for what fails inside the block."""
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        try:
            method, url, headers, data, _ = await self._client.param_serialize(
                method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            answer = (await self._client.call_api(method, url, headers, data, _request_timeout=timeout)).response
            try:
                if answer.status >= 400:
                    raise await _error(method, path, answer)
                yield answer
            finally:
                answer.close() if timeout.total is None else answer.release()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error


async def _error(method: str, path: str, answer: aiohttp.ClientResponse) -> ApiError:
    try:
        message = msgspec.json.decode(await answer.content.read(65536), type=_Status).message
    except msgspec.DecodeError:
        message = answer.reason or ""
    try:
        retry_after_s = float(answer.headers.get("Retry-After", "0"))
    except ValueError:
        retry_after_s = 0.0
    return ApiError(answer.status, f"{method} {path}: {answer.status} {message}", retry_after_s)


class _Status(msgspec.Struct):
    message: str = ""


class Backoff:
    """Growing delays after failures: 0.5 s doubling to 30 s, or what the server asks for (at most 60 s)."""

    def __init__(self) -> None:
        self._failures = 0

    async def wait(self, error: ClusterError) -> None:
        """Sleep before the next try."""
        asked = min(error.retry_after_s, 60.0) if isinstance(error, ApiError) else 0.0
        self._failures += 1
        await asyncio.sleep(max(asked, min(30.0, 0.25 * 2**self._failures)))

    def reset(self) -> None:
        """Begin anew after a success."""
        self._failures = 0
