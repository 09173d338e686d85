"""report/held.py: why bytes waited to be sent where that burned the budget."""

import pytest
from msgspec.structs import replace

from latencyprobe.report import held, model
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import COVERAGE

RESULT = model.Result("p", "o", "web", "Client", "1ms", "99", "1d", State.VIOLATED, 100, 90, 1, COVERAGE, "")


def result(*reasons: str, bad: int = 90, bad_share: str = "98") -> model.Result:
    """With so many slowest events, each with that `what`."""
    slowest = tuple(
        model.Slow(f"{i:032x}", "", "50ms", (), evidence=(model.EvidenceSummary("unsent", what, 400, "41ms"),))
        for i, what in enumerate(reasons)
    )
    explained = (model.Explained("unsent", bad, "90", bad, bad_share, "4s"),)
    return replace(RESULT, evidence=explained, slowest=slowest)


def test_the_reason_of_most_of_the_slowest_has_its_remedy() -> None:
    assert held.advice(result("server cwnd", "server nagle", "server nagle")) == (
        "bytes of the slowest were held by the server's kernel: Nagle, until the client's ACK: "
        "set TCP_NODELAY or write once"
    )


@pytest.mark.parametrize(
    "found",
    [RESULT, result(), result("server nagle", bad_share="9.9"), result("server nagle", bad=0, bad_share="0")],
    ids=["no evidence", "no slowest", "few", "none bad"],
)
def test_what_burned_nothing_and_what_nobody_tells_has_no_advice(found: model.Result) -> None:
    assert held.advice(found) == ""
