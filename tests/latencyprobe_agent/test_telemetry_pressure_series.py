"""Points of what held up containers: the kernel's figures in seconds, each container once."""

from typing import Any

from latencyprobe_agent.identity.pressure import Quota, Reading
from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.telemetry.pressure_series import PressureSeries


def stall(container: str, *quotas: Quota, **some_us: int) -> Stall:
    total = Reading(9, quotas, some_us, {name: us // 2 for name, us in some_us.items()})
    return Stall(container, 1_000_000, {}, total)


def found(series: PressureSeries, *without: int) -> dict[Any, float]:
    return {
        (point.observed, point.metric.name.removeprefix("latencyprobe.container."), *(v for _, v in point.labels)):
        point.value for point in series.points(without)
    }  # fmt: skip


def test_figures_are_the_kernels_in_seconds() -> None:
    series = PressureSeries()
    series.add({7: stall("/a", Quota(10, 3, 250_000), Quota(20, 1, 5_000), io=1_500_000)}, [7])
    assert found(series) == {
        (7, "cpu.periods", "container"): 10,
        (7, "cpu.throttled_periods", "container"): 3,
        (7, "cpu.throttled", "container"): 0.25,
        (7, "cpu.periods", "above"): 20,
        (7, "cpu.throttled_periods", "above"): 1,
        (7, "cpu.throttled", "above"): 0.005,
        (7, "pressure", "io", "some"): 1.5,
        (7, "pressure", "io", "full"): 0.75,
    }


def test_without_a_quota_or_without_psi_nothing_is_told_of_it() -> None:
    series = PressureSeries()
    series.add({7: stall("/a", Quota(), Quota()), 8: stall("/b", io=0)}, [7, 8])
    assert found(series) == {(8, "pressure", "io", "some"): 0.0, (8, "pressure", "io", "full"): 0.0}


def test_a_container_has_one_series_whatever_owners_it_has_and_keeps_it_until_its_last_counts_are_out() -> None:
    series = PressureSeries()
    same = stall("/a", io=2_000_000)
    series.add({7: same, 8: same}, [7, 8])
    assert {owner for owner, *_ in found(series)} == {7}
    assert {owner for owner, *_ in found(series, 7)} == {8}
    series.add({}, [7])
    assert {owner for owner, *_ in found(series)} == {7}
    series.add({}, [])
    assert found(series) == {}
