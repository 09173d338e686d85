"""What the records of an exchange of the agent's own show of the hooks that it passed."""

import numpy as np
import pytest

from latencyprobe_agent.measure.canary import ALL_EVENTS, silent_events
from latencyprobe_agent.vocabulary.records import EXCHANGE, ExchangeFlags

WHOLE = ExchangeFlags.FRESH | ExchangeFlags.CLOSED


def ends(*flags: ExchangeFlags) -> np.ndarray:
    records = np.zeros(len(flags), EXCHANGE)
    records["flags"] = flags
    return records


def test_nothing_is_silent_where_both_ends_have_all_stamps() -> None:
    assert silent_events(ends(WHOLE, WHOLE)) == frozenset()


@pytest.mark.parametrize(
    ("flag", "events"),
    [
        (ExchangeFlags.SEND_APPROX, {"send_start", "send_end"}),
        (ExchangeFlags.READY_APPROX, {"ready"}),
        (ExchangeFlags.READ_APPROX, {"read"}),
    ],
)
def test_a_stamp_that_one_end_lacks_names_its_event(flag: ExchangeFlags, events: set[str]) -> None:
    assert silent_events(ends(WHOLE, WHOLE | flag)) == events


def test_a_connection_that_was_not_seen_to_begin_names_the_state_event() -> None:
    assert silent_events(ends(ExchangeFlags.CLOSED, WHOLE)) == {"state"}


@pytest.mark.parametrize("told", [0, 1])
def test_an_end_of_which_nothing_was_told_names_all_events(told: int) -> None:
    assert silent_events(ends(*[WHOLE] * told)) == ALL_EVENTS
