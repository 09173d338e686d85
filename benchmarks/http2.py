"""What it costs to tell calls of HTTP/2 by stream."""

from functools import partial

from benchmarks import rounds, variants
from benchmarks.loads import Nginx, nginx
from benchmarks.report import Report

_PORT = 7873
_AT_ONCE = (1, 20, 100)


def cost_of_http2(report: Report, count: int, turns: int) -> None:
    """CPU of h2load and nginx per request, with few and many streams at once."""

    def one(server: Nginx, at_once: int, _: object) -> float:
        return server.ask(turns // 2 if at_once == 1 else turns, at_once)

    with nginx(_PORT) as server:
        for at_once in _AT_ONCE:
            title = f"CPU of h2load and nginx per request, {at_once} at once"
            slices, note = rounds.run(title, partial(one, server, at_once), variants.http2(_PORT), count)
            report.compared(f"{title} ({note})", slices)
