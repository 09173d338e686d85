"""The connection to the Kubernetes API server: one session and pool per process, raw JSON in and out.

In a pod it needs aiohttp alone; outside one the user's kubeconfig, with its exec plugins, is read by `kubernetes.aio`,
whose client would cost each operator 12 MB of the 70 that it may use.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp
import msgspec

from latencyprobe.errors import ClusterError

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"  # the rest of objects is not sent
METADATA_OF_ALL = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


Authorization = Callable[[], Awaitable[str | None]]  # the header's value, asked for each request: tokens rotate


class InPod(NamedTuple):
    """How a pod reaches its API server: by address, because cluster DNS may be what is broken."""

    server: str
    service_account: Path

    @classmethod
    def detect(cls, service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")) -> Self | None:
        """Return None outside a pod."""
        address = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        if not address or not (service_account / "token").exists():
            return None
        host = f"[{address}]" if ":" in address else address
        return cls(f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}", service_account)

    @property
    def ca_file(self) -> str:
        """The file of the API server's CA."""
        return str(self.service_account / "ca.crt")

    @property
    def token(self) -> str:
        """The token as it is now: the kubelet replaces it before it ends."""
        return (self.service_account / "token").read_text().strip()


class ApiError(ClusterError):
    """The API server answered with an error. `status`: HTTP status; `retry_after_s`: what it asks for, or 0."""

    def __init__(self, status: int, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class TooLong(ClusterError):  # noqa: N818 - a state of the answer, no fault of ours
    """An answer has more bytes than are read of it."""


class Api:
    """Requests to the API server. `async with Api.connect() as api`."""

    def __init__(
        self, host: str, tls: ssl.SSLContext | None, authorization: Callable[[], Awaitable[str | None]]
    ) -> None:
        self._host = host.rstrip("/")
        self._authorization = authorization
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls or True),
            headers={"User-Agent": "latencyprobe-operator"},
            read_bufsize=1 << 20,
            trust_env=True,
        )

    @classmethod
    async def connect(cls) -> Self:
        """Use the pod's service account, else the user's kubeconfig. Raises ClusterError without either."""
        pod = InPod.detect()
        if pod is None:
            return await cls._by_hand()

        async def bearer() -> str:
            return f"Bearer {pod.token}"

        return cls(pod.server, ssl.create_default_context(cafile=pod.ca_file), bearer)

    @classmethod
    async def _by_hand(cls) -> Self:
        from kubernetes.aio import client, config  # noqa: PLC0415 - 12 MB that no pod needs

        settings = client.Configuration()
        try:
            await config.load_kube_config(  # by itself it takes KUBECONFIG as it was when it was imported
                os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config"), client_configuration=settings
            )
        except config.ConfigException as error:
            raise ClusterError(f"not in a pod, and no usable kubeconfig ({error}): set KUBECONFIG") from error
        tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            tls.load_cert_chain(settings.cert_file, settings.key_file)
        if not settings.verify_ssl:  # insecure-skip-tls-verify in the user's kubeconfig
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        return cls(settings.host, tls, lambda: settings.get_api_key_with_prefix("BearerToken"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = REQUEST_TIMEOUT_S,
        most_bytes: int | None = None,
    ) -> bytes:
        """Return the body of a successful answer. Raises ApiError for another, TooLong for one that has more than
        `most_bytes`, ClusterError when there is none."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_TIMEOUT_S, timeout_s))
        request = self.stream(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
        )
        async with request as answer:
            if most_bytes is None:
                return await answer.read()
            read = bytearray()
            async for piece in answer.content.iter_any():
                read += piece
                if len(read) > most_bytes:
                    raise TooLong(f"{method} {path}: more than {most_bytes} bytes")
            return bytes(read)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own timeout also frees the connection
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give the response of a request, unread. Raises as `call`, also for what fails inside the block."""
        headers = {"Content-Type": content_type, "Accept": accept}
        data = None if body is None else msgspec.json.encode(body)
        try:
            if (bearer := await self._authorization()) is not None:
                headers["Authorization"] = bearer
            async with self._session.request(
                method, self._host + path, params=query, data=data, headers=headers, timeout=timeout
            ) as answer:
                if answer.status >= 400:
                    raise await _error(method, path, answer)
                yield answer
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
        self._delay_s = FIRST_DELAY_S

    async def wait(self, error: Exception) -> None:
        """Sleep before the next try."""
        asked_s = min(error.retry_after_s, 60.0) if isinstance(error, ApiError) else 0.0
        delay_s, self._delay_s = self._delay_s, min(MAX_DELAY_S, 2 * self._delay_s)
        await asyncio.sleep(max(asked_s, delay_s))

    def reset(self) -> None:
        """Begin anew after a success."""
        self._delay_s = FIRST_DELAY_S
