import json
import logging

from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.logs import JsonLines


@given(st.text(), st.text())
def test_any_text_is_one_line_of_json(message: str, extra: str) -> None:
    record = logging.LogRecord("agent", logging.WARNING, "", 1, "%s", (message,), None)
    record.reason = extra
    formatted = JsonLines().format(record)
    assert "\n" not in formatted
    assert "\x1b" not in formatted
    line = json.loads(formatted)
    assert (line["level"], line["message"], line["reason"]) == ("warning", message, extra)


def test_times_are_iso_8601_in_utc() -> None:
    record = logging.LogRecord("agent", logging.INFO, "", 1, "x", (), None)
    record.created = 1_700_000_000.25
    assert json.loads(JsonLines().format(record))["time"] == "2023-11-14T22:13:20.250Z"
