"""What held up containers, in words: how much of their time, and what can be done where it burned the budget. Pure."""

from decimal import Decimal
from fractions import Fraction

from latencyprobe import pressure
from latencyprobe.report import units
from latencyprobe.report.model import Pressure, Result
from latencyprobe.sli import SliRow


def of(row: SliRow) -> tuple[Pressure, ...]:
    """Return what held up the containers of a row, in the order of the kinds."""
    known = ((kind.name, row.pressure[kind.name]) for kind in pressure.ALL if kind.name in row.pressure)
    return tuple(
        Pressure(
            kind=kind,
            share=units.percent(Fraction(time.us, time.of_us), 1),
            time=units.duration(time.us * 1000),
            bad_share=units.percent(Fraction(time.bad_us, time.bad_of_us), 1) if time.bad_of_us else None,
        )
        for kind, time in known
        if time.of_us
    )


def told(result: Result) -> str:
    """Return one line with the kinds that took a notable share of the time, empty without any."""
    shares = [_share(one) for one in result.pressure if _most(one) >= units.NOTABLE]
    when = "; in brackets when bad ones ended" if any("(" in share for share in shares) else ""
    return f"containers were held up: {', '.join(shares)}{when}" if shares else ""


def advice(result: Result) -> str:
    """Return what to do about what held up containers when bad events ended, empty where nothing did."""
    shares = {one.kind: Decimal(one.bad_share) for one in result.pressure if one.bad_share is not None}
    if not result.bad:
        return ""
    for kind in pressure.ALL:
        if (share := shares.get(kind.name, Decimal(0))) >= units.WORTH_A_REMEDY:
            at_most = "at most " if kind.name == pressure.THROTTLED and share < 100 else ""
            when = "of the time in the seconds that burned the budget"
            return f"containers were {kind.told} {at_most}{share} % {when}: {kind.remedy}"
    return ""


def _share(one: Pressure) -> str:
    bad = f" ({one.bad_share} %)" if one.bad_share is not None else ""
    return f"{one.kind} {one.share} %{bad}"


def _most(one: Pressure) -> Decimal:
    return max(Decimal(one.share), Decimal(one.bad_share or 0))
