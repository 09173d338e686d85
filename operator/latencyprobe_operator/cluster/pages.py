"""Lists of the API server, page by page, each of which is let go before the next one is asked for.

An object may have 1.5 MiB, and who may make one may make 500 of them: where a page would be too long, fewer objects are
asked for at once.
"""

from collections.abc import AsyncIterator, Mapping

import msgspec

from latencyprobe_operator.cluster.api import JSON, Api, TooLong
from latencyprobe_operator.cluster.nesting import decoded

PAGE = 500  # objects
PAGE_BYTES = 16 << 20  # of nodes, whose images are named, 500 have some 10 MB
_FEWER = 8


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """Objects as they are sent, and the resource version of the whole list."""

    metadata: _Meta
    items: list[msgspec.Raw] | None = None


async def pages(
    api: Api, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON
) -> AsyncIterator[Page]:
    """Yield all pages of a list. Raises as Api.call, and msgspec.DecodeError for what is no list."""
    asked, limit = dict(query or {}), PAGE
    while True:
        try:
            body = await api.call(
                "GET", path, query=asked | {"limit": str(limit)}, accept=accept, most_bytes=PAGE_BYTES
            )
        except TooLong:
            if limit == 1:
                raise
            limit = max(1, limit // _FEWER)
            continue
        page = decoded(body, Page)
        del body
        more = page.metadata.continue_
        yield page
        del page
        if not more:
            return
        asked["continue"], limit = more, min(PAGE, 2 * limit)
