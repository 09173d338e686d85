"""report/csv.py: what a spreadsheet gets."""

import csv as standard
import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from latencyprobe.report import csv
from latencyprobe.report.model import LatencyReport
from tests.latencyprobe.report_examples import IDLE, RICH, document, hostile, many

DOCUMENTS = Path(__file__).parents[2] / "docs"


def rows(*reports: LatencyReport) -> list[dict[str, str]]:
    return list(standard.DictReader(io.StringIO(csv.render(reports), newline=""), strict=True))


def test_a_row_has_the_figures_of_an_objective_with_their_units() -> None:
    (row,) = rows(document(RICH))
    expected = {
        "namespace": "shop",
        "objective": "fast",
        "threshold_ms": "25",
        "goal_percent": "99.9",
        "state": "Violated",
        "bad": "612",
        "budget_left_percent": "-920",
        "alerts_firing": "page 6h/30m",
        "p50_ms": "0.562",
        "p999_ms": "812",
        "burned_by": "network",
        "burned_by_percent": "70.4",
        "worst_peer": "shop/frontend",
        "slowest_ms": "63.4323",
        "slowest_trace_id": "5" * 32,
        "coverage_percent": "88.1",
        "not_measured": "3h20m",
        "updated": "2026-09-21T14:13:00Z",
    }
    assert expected == {name: row[name] for name in expected}


def test_what_is_not_known_is_empty_and_not_0() -> None:
    (row,) = rows(document(IDLE))
    assert {""} == {row[name] for name in ("sli_percent", "budget_left_percent", "p50_ms", "burned_by", "slowest_ms")}
    assert "0" == row["events"]


def test_namespaces_follow_each_other_below_one_header() -> None:
    found = rows(document(RICH, IDLE), document(IDLE, namespace="bank"), document(namespace="empty"))
    assert ["shop", "shop", "bank"] == [row["namespace"] for row in found]
    assert [f"namespace,{','.join(csv.COLUMNS)}"] == csv.render([]).splitlines()
    assert 256 == len(rows(many()))


def test_hostile_text_stays_in_its_cell_and_is_no_formula() -> None:
    source = csv.render([hostile()])
    assert 3 == len(source.splitlines())
    assert [len(csv.COLUMNS) + 1] * 3 == [len(row) for row in standard.reader(io.StringIO(source, newline=""))]
    assert "\u202e" not in source


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "-1.5e3"])
def test_text_that_a_spreadsheet_would_compute_gets_an_apostrophe(name: str) -> None:
    (row,) = rows(document(replace(RICH, objective=name)))
    assert f"'{name}" == row["objective"]


def test_every_column_is_documented() -> None:
    page = (DOCUMENTS / "slo.md").read_text().partition("### As a file")[2].partition("\n## ")[0]
    assert [] == [name for name in ("namespace", *csv.COLUMNS) if f"`{name}`" not in page]
