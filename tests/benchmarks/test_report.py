import json

import numpy as np

from benchmarks.compare import Interval
from benchmarks.report import Found, Report

HEADLINE = {"date": "2026-11-22", "kernel": "Linux 6.18.44", "machine": "2 CPUs"}
C3 = Found("C3", Interval(1.08, 1.07, 1.09), Interval(1.0, 0.99, 1.01))
C6 = Found("C6", Interval(30.0, 29.0, 31.0), note="50,000 RPC/s reached")


def report(*found: Found) -> Report:
    made = Report(HEADLINE)
    made.console.quiet = True
    for one in found:
        made.finds(one)
    return made


def test_the_summary_has_each_goal_in_its_order_with_day_kernel_and_machine():
    head, _, names, _, *rows = report(C6, C3).markdown().splitlines()
    assert head == "2026-11-22, Linux 6.18.44, 2 CPUs."
    assert names == "| id | measure | found [95 %] | A/A | goal | verdict |"
    assert [row.split(" | ")[0] for row in rows] == ["| C3", "| C6"]
    assert rows[0].endswith("| 1.080 [1.070, 1.090] | 1.000 [0.990, 1.010] | ≤ 1.12 | met |")
    assert rows[1].endswith("(50,000 RPC/s reached) | 30.0 [29.0, 31.0] % | – | ≤ 2 % | not met |")


def test_what_could_not_be_measured_has_its_row_and_its_reason():
    made = report(C3)
    made.lacks("C10", "this machine has one processor")
    assert "| this machine has one processor | – | – | not measured |" in made.markdown().splitlines()[-1]


def test_the_document_has_the_numbers_and_the_tables_below(tmp_path):
    made = report(C3)
    made.compared("GET", {name: np.array([1.0, 1.0]) for name in ("none", "ours", "none again")})
    made.save(tmp_path)
    document = json.loads((tmp_path / "cost.json").read_text())
    assert HEADLINE.items() <= document.items()
    (found,) = document["found"]
    assert (found["found"], found["verdict"]) == ({"median": 1.08, "low": 1.07, "high": 1.09}, "met")
    (table,) = document["tables"]
    assert [row["variant"] for row in table["rows"]] == ["none", "ours", "none again"]
    assert "**GET**" in (tmp_path / "cost.md").read_text()
