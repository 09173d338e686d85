"""Turns that count as no RPC, in words: how many, why, and what can be done about it. Pure.

The report (table.py) and the live line of `latencyprobe run` say it alike; latencyprobe/exclusions.py has the words.
"""

from collections.abc import Mapping
from fractions import Fraction

from latencyprobe import exclusions
from latencyprobe.report import units
from latencyprobe.report.model import Coverage, Result
from latencyprobe.slo.evaluate import COMPLETE_FROM, State


def no_rpc(by_reason: Mapping[str, int], excluded: int, seen: int) -> str:
    """Return how many of the turns `seen` count as no RPC, and why, most frequent first; empty for none.

    `excluded`: of all reasons; where the reasons explain less, counts are from before they were told.
    """
    if not excluded:
        return ""
    turns = units.number(max(seen, excluded), "turn")
    untold = excluded - sum(by_reason.values())
    reasons = worded(by_reason) + [("untold", untold)] * (untold > 0)
    why = reasons[0][0] if len(reasons) == 1 else ", ".join(f"{word} {n:,}" for word, n in reasons)
    return f"{excluded:,} of {turns} counted as no RPC: {why}"


def of_coverage(coverage: Coverage) -> str:
    """Return the same of a report's coverage."""
    return no_rpc(_counts(coverage), coverage.ambiguous + coverage.excluded, coverage.seen)


def mostly_none(result: Result) -> bool:
    """Return whether more turns count as no RPC than are events."""
    return result.coverage.ambiguous + result.coverage.excluded > result.events


def advice(result: Result) -> str:
    """Return what to do about the reason that takes most; empty where what is left out does not matter.

    It matters where ambiguous turns alone make the view incomplete, and where nothing can be judged for want of events.
    """
    by_reason = by_size(_counts(result.coverage))
    ambiguous = result.coverage.ambiguous
    if ambiguous and Fraction(result.events, result.events + ambiguous) < COMPLETE_FROM:
        by_reason = [item for item in by_reason if item[0] in exclusions.BY_NAME]
        by_reason = [item for item in by_reason if exclusions.BY_NAME[item[0]].ambiguous]
    elif result.state is not State.NO_DATA or not mostly_none(result):
        return ""
    known = [exclusions.BY_NAME[reason] for reason, _ in by_reason[:1] if reason in exclusions.BY_NAME]
    return next((f"{one.word}: {one.remedy}" for one in known if one.remedy), "")


def by_size(by_reason: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return what there is of each reason, most frequent first."""
    return sorted(((reason, n) for reason, n in by_reason.items() if n), key=lambda item: (-item[1], item[0]))


def worded(by_reason: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the same with the words of a person; a reason of another version has its name alone."""
    known = exclusions.BY_NAME
    return [(known[reason].word if reason in known else reason, n) for reason, n in by_size(by_reason)]


def _counts(coverage: Coverage) -> dict[str, int]:
    return {exclusion.reason: exclusion.turns for exclusion in coverage.exclusions}
