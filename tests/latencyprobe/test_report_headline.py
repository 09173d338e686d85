"""report/headline.py: what stands above the objectives."""

from msgspec.structs import replace

from latencyprobe.report import choosing, headline
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import IDLE, RICH, document

MET = replace(RICH, objective="calm", state=State.MET)


def test_it_names_the_worst_and_counts_what_found_no_room() -> None:
    report = document(RICH, MET)
    assert "shop: 1 of 2 objectives met; worst: checkout/fast is Violated" == headline.headline(report, "shop")
    crowded = document(MET, omitted=3)
    assert "1 of 4 objectives met" == headline.headline(crowded)
    assert "3 more objectives are not shown." == headline.omitted(crowded)
    assert "" == headline.omitted(document(MET))


def test_the_worst_of_all_is_named_where_a_limit_left_it_out() -> None:
    cut = choosing.first(document(MET, IDLE, RICH), 1)
    assert "1 of 3 objectives met; worst: checkout/fast is Violated" == headline.headline(cut)
    assert "2 of 3 objectives met; worst: checkout/idle is No data" == headline.headline(
        choosing.first(document(MET, replace(MET, objective="calmer"), IDLE), 2)
    )


def test_an_age_is_told_once_it_is_notable_and_is_a_warning_once_nobody_renews_it() -> None:
    assert headline.NOW == headline.updated(1) == headline.counted(299)
    assert ("updated 20s ago", False) == headline.updated(20)
    assert ("updated 10m ago: is the operator running?", True) == headline.updated(600)
    assert ("last counted 1d2h ago", True) == headline.counted(26 * 3600)


def test_an_age_that_cannot_be_told_is_a_warning_and_not_fresh() -> None:
    assert headline.NOW == headline.updated(-59)
    assert ("updated 1h from now: is a clock wrong?", True) == headline.updated(-3600)


def test_an_age_alone_is_a_sentence() -> None:
    assert "Last counted 5m ago." == headline.counted(300).sentence
    assert "Updated 10m ago: is the operator running?" == headline.updated(600).sentence
