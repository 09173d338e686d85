"""docs/symptoms.md names each service that the end-to-end test makes slow, and three commands."""

from tests.e2e.slow_services import CAUSES, EVIDENCE, TIMES, symptoms, way


def test_each_cause_that_is_staged_has_its_row_and_each_row_is_staged() -> None:
    rows = symptoms()
    assert sorted(row.service for row in rows) == sorted([*TIMES, "stock"])  # whom front asks waits for stock's lock
    assert {*CAUSES, *EVIDENCE} <= {row.service for row in rows}
    assert all(row.reported and row.explained for row in rows)


def test_the_way_is_three_commands_long() -> None:
    assert [command.split()[:2] for command in way()] == [
        ["kubectl", "get"],
        ["latencyprobe", "report"],
        ["latencyprobe", "explain"],
    ]
