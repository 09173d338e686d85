"""The signal table: one row per signal. `Programs` loads and drains what it names; a new signal is a new row."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.records import EXCHANGE
from latencyprobe_agent.signals import exchanges


@dataclass(frozen=True)
class Signal:
    """`name`: file stem of the object; `ring`: its ring map; `record`: dtype in it; `columns`: the decoder."""

    name: str
    ring: str
    record: np.dtype[np.void]
    columns: Callable[[NDArray[np.void]], object]


EXCHANGES = Signal("exchange", "exchanges", EXCHANGE, exchanges.columns)
SIGNALS = (EXCHANGES,)
