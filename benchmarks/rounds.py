"""Interleaved rounds: every variant in each, in rotated order, and which rounds others have disturbed."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks import machine
from benchmarks.compare import F64
from benchmarks.processes import own_s

FOREIGN_LIMIT = 0.05  # of the machine; rounds above it are left out
_LEAST = 5  # rounds; fewer have no interval

Variant = Callable[[], AbstractContextManager[Any]]
Slices = dict[str, F64]


def run(name: str, one: Callable[[Any], float | F64], under: Mapping[str, Variant], rounds: int) -> tuple[Slices, str]:
    """(What each variant's slices gave, [rounds, ...]; how many rounds that are). `one`: runs a slice, with what its
    variant yields."""
    return quiet(*interleaved(name, one, under, rounds))


def interleaved(
    name: str, one: Callable[[Any], float | F64], under: Mapping[str, Variant], rounds: int
) -> tuple[Slices, F64]:
    """(What each variant's slices gave, [rounds, ...]; largest share of foreign CPU of each round)."""
    names = list(under)
    found: dict[str, list[float | F64]] = {variant: [] for variant in names}
    foreign = np.zeros(rounds)
    for i in track(range(rounds), name):
        for variant in names[i % len(names) :] + names[: i % len(names)]:
            with under[variant]() as attached:
                busy, own, began = machine.busy_s(), own_s(), time.monotonic()
                found[variant].append(one(attached))
                spent = machine.busy_s() - busy - (own_s() - own)
                share = spent / (time.monotonic() - began) / (os.cpu_count() or 1)
                foreign[i] = max(foreign[i], share)
    return {variant: np.array(values) for variant, values in found.items()}, foreign


def quiet(slices: Slices, foreign: F64) -> tuple[Slices, str]:
    """Leave out rounds in which others used the machine, unless hardly any would stay."""
    kept = foreign <= FOREIGN_LIMIT
    if kept.sum() < min(_LEAST, len(kept)):
        return slices, f"NOISY: only {kept.sum()} of {len(kept)} rounds had at most 5 % foreign CPU; all are used"
    return {name: values[kept] for name, values in slices.items()}, f"{kept.sum()} of {len(kept)} rounds used"
