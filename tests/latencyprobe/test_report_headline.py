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
