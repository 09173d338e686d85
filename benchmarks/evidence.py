"""What each signal of evidence costs alone, and all of them; no goal of its own, but part of what is turned on."""

from benchmarks import rounds
from benchmarks.loads import redis
from benchmarks.report import Report
from benchmarks.variants import evidence

_PORT = 7872


def cost_of_evidence(report: Report, count: int, turns: int) -> None:
    """CPU of Redis per GET, and per connection with one GET on it."""
    with redis(_PORT) as server:
        subjects = (
            ("CPU of the Redis server per GET", lambda _: server.get(turns)),
            ("CPU of the Redis server per connection with one GET", lambda _: server.connect(turns // 10)),
        )
        for title, one in subjects:
            slices, note = rounds.run(title, one, evidence(_PORT), count)
            report.compared(f"{title} ({note})", slices)
