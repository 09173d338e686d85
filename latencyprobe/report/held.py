"""Bytes that waited to be sent where that burned the budget: who held them, why, and what helps, in words. Pure."""

from collections import Counter
from decimal import Decimal

from latencyprobe import unsent
from latencyprobe.report import units
from latencyprobe.report.model import Result


def advice(result: Result) -> str:
    """Return the reason that most of the slowest events with such bytes have; empty where few bad ones have any, and
    where no slowest one tells: the counts of all know no reasons."""
    hit = any(
        one.bad and Decimal(one.bad_share) >= units.WORTH_A_REMEDY
        for one in result.evidence
        if one.signal == unsent.SIGNAL
    )
    told = Counter(one.what for slow in result.slowest for one in slow.evidence if one.signal == unsent.SIGNAL)
    if not hit or not told:
        return ""
    ((what, _),) = told.most_common(1)
    return f"bytes of the slowest were {unsent.sentence(what)}"
