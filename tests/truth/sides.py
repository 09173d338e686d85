"""What was recorded at one side of a connection, in the order of its bytes; for tests of what one connection does."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Role


def of_role(records: NDArray[np.void], role: Role) -> NDArray[np.void]:
    """The records of one end, in the order of its bytes."""
    return np.sort(records[records["role"] == role], order=["request_offset", "response_offset"])


def names(records: NDArray[np.void]) -> list[tuple[str, str]]:
    """(Class, reason) of each."""
    return [
        (ExchangeClass(int(record["conn_class"])).name, Excluded(int(record["excluded"])).name) for record in records
    ]
