"""report/drawing.py: where the marks of pictures are."""

import pytest
from msgspec.structs import replace

from latencyprobe import stages
from latencyprobe.report import drawing, model
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import IDLE, RICH, SLOW


def test_budget_that_is_left_is_no_part_of_what_is_spent() -> None:
    found = drawing.budget(replace(RICH, error_budget_remaining="79.5"))
    assert found is not None
    assert (drawing.Mark("spent", 0.0, 20.5, "k-spent"), None, 100.0) == found


def test_overspent_budget_ends_where_it_ends() -> None:
    found = drawing.budget(replace(RICH, error_budget_remaining="-300"))
    assert found is not None
    assert found.over is not None
    assert (25.0, 25.0, 25.0, 75.0) == (found.limit, found.spent.width, found.over.start, found.over.width)


def test_what_is_not_known_is_not_drawn() -> None:
    assert drawing.budget(IDLE) is None
    assert drawing.budget(replace(RICH, state=State.NO_DATA)) is None
    assert drawing.latency(IDLE) is None
    assert () == drawing.burned_by(IDLE)
    assert () == drawing.waterfall(replace(SLOW, stages=()))


def test_stages_follow_each_other_and_fill_the_picture() -> None:
    marks = drawing.waterfall(SLOW)
    assert [one.stage for one in SLOW.stages] == [one.label for one in marks]
    assert [0.0, *(one.start + one.width for one in marks)] == pytest.approx([*(one.start for one in marks), 100.0])


def test_stages_begin_where_they_are_said_to_on_a_longer_axis() -> None:
    marks = drawing.waterfall(
        replace(SLOW, stages=(model.Stage("process", "2ms"), model.Stage("send", "1ms"))), 3_000_000, 10_000_000
    )
    assert [30.0, 20.0, 50.0, 10.0] == pytest.approx([at for one in marks for at in (one.start, one.width)])


@pytest.mark.parametrize(
    ("axis_ns", "labels"),
    [
        (63_432_300, ["0s", "20ms", "40ms", "60ms"]),
        (100_004_000, ["0s", "50ms", "100ms"]),
        (999, ["0s", "200ns", "400ns", "600ns", "800ns"]),
        (1_000_000_000, ["0s", "500ms", "1s"]),
        (7, ["0s", "2ns", "4ns", "6ns"]),
        (1, ["0s", "1ns"]),
        (0, []),
    ],
)
def test_an_axis_has_few_round_durations(axis_ns: int, labels: list[str]) -> None:
    found = drawing.ticks(axis_ns)
    assert labels == [text for text, _ in found]
    assert all(0 <= at <= 100 for _, at in found)


def test_stages_of_no_length_are_drawn_with_none() -> None:
    (mark,) = drawing.waterfall(replace(SLOW, stages=(model.Stage("process", "0s"),)))
    assert (0.0, 0.0) == (mark.start, mark.width)


@pytest.mark.parametrize(("shares", "end"), [(("40", "20"), 60.0), (("90", "60"), 100.0)])
def test_shares_of_bad_events_are_of_all_of_them_and_never_leave_the_picture(
    shares: tuple[str, ...], end: float
) -> None:
    by_stage = tuple(model.BadStage("network", 1, share, "1s") for share in shares)
    last = drawing.burned_by(replace(RICH, bad_by_stage=by_stage))[-1]
    assert end == pytest.approx(last.start + last.width)


def test_quantiles_and_threshold_share_a_logarithmic_axis() -> None:
    found = drawing.latency(replace(RICH, threshold="10ms", quantiles=model.Quantiles("1ms", "10ms", "100ms", "1s")))
    assert found is not None
    assert [0.0, 100 / 3, 200 / 3, 100.0] == pytest.approx([one.at for one in found.quantiles])
    assert [False, False, True, True] == [one.late for one in found.quantiles]
    assert 100 / 3 == pytest.approx(found.threshold)
    assert ["1ms", "10ms", "100ms", "1s"] == [text for text, _ in found.ticks]


@pytest.mark.parametrize("duration", ["0s", "1ns", "25ms", "900s"])
def test_equal_quantiles_have_an_axis_too(duration: str) -> None:
    found = drawing.latency(replace(RICH, threshold=duration, quantiles=model.Quantiles(*[duration] * 4)))
    assert found is not None
    assert all(0 <= at <= 100 for at in (found.threshold, *(one.at for one in found.quantiles)))
    assert 2 <= len(found.ticks) <= 5


def test_stages_are_listed_once_in_the_order_of_their_table() -> None:
    assert [*stages.PAIR] == drawing.drawn([RICH, RICH])
    assert [] == drawing.drawn([IDLE])


def test_stage_of_another_version_has_the_colour_of_those() -> None:
    assert ("k-magenta", "k-white") == (drawing.colour("network"), drawing.colour('"><script>'))


def down(since: str, *left: str) -> drawing.BurnDown | None:
    return drawing.burn_down(replace(RICH, window="1d", burn_down=model.BurnDown(since, "6h", left)))


def test_burn_down_spans_the_part_of_the_window_that_it_knows() -> None:
    found = down("2026-09-21T02:13:00Z", "75", "50")
    assert found is not None
    assert [(50, 0), (75, 25), (100, 50)] == [pytest.approx(point) for point in found.line]
    assert ((), 100.0, (("100 %", 0.0), ("0 %", 100.0))) == (found.over, found.zero, found.labels)


def test_what_is_overspent_is_below_the_line_and_labels_never_touch() -> None:
    found = down("2026-09-20T14:13:00Z", "50", "-100")
    assert found is not None
    assert (50.0, (("100 %", 0.0), ("0 %", 50.0), ("-100 %", 100.0))) == (found.zero, found.labels)
    assert all(y <= 50 for _, y in found.within)
    assert all(y >= 50 for _, y in found.over)
    far = down("2026-09-20T14:13:00Z", "50", "-10000")
    assert far is not None
    assert ["0 %", "-10,000 %"] == [text for text, _ in far.labels]


def test_burn_down_of_one_step_is_no_picture() -> None:
    assert down("2026-09-21T08:13:00Z", "75") is None


@pytest.mark.parametrize(
    ("left", "width", "expected"),
    [
        (("100", "50", "0", "-900"), 40, "█▅▁▁"),
        (("100", "100", "12", "88"), 2, "█▁"),
        (tuple(map(str, range(100, -20, -1))), 8, "▇▆▅▄▃▁▁▁"),
    ],
)
def test_sparkline_shows_the_least_of_each_stretch(left: tuple[str, ...], width: int, expected: str) -> None:
    assert expected == drawing.sparkline(left, width)
