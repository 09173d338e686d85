"""What each signal of evidence costs alone, and all of them; what waits and their tools do under other loads."""

from benchmarks import rounds
from benchmarks.host_part import cost_of_host_part
from benchmarks.loads import redis
from benchmarks.report import Report
from benchmarks.variants import evidence

_PORT = 7872


def cost_of_evidence(report: Report, count: int, turns: int) -> None:
    """CPU of Redis per GET, and per connection with one GET on it; then what host_part.py says."""
    with redis(_PORT) as server:
        subjects = (
            ("CPU of the Redis server per GET", lambda _: server.get(turns)),
            ("CPU of the Redis server per connection with one GET", lambda _: server.connect(turns // 10)),
        )
        for title, one in subjects:
            slices, note = rounds.run(title, one, evidence(_PORT), count)
            report.compared(f"{title} ({note})", slices)
    cost_of_host_part(report, count, turns)
