"""yaml_text.py: what kubectl and we read of it is the same."""

import pytest
import yaml

from latencyprobe import yaml_text


@pytest.mark.parametrize(
    "text",
    [
        *("y", "N", "1e3", "12e4567", "08", "0o17", "1e+3", "99", "true", "on", "1:30", "~", "1."),
        *("1_0e3", "0B1", "0X1f", ".inf"),
    ],
)
def test_a_text_that_some_reader_takes_for_something_else_is_quoted(text: str) -> None:
    assert f"version: '{text}'\n" == yaml_text.dump({"version": text})


@pytest.mark.parametrize("text", ["cart", "25ms", "28d", "1e", "e3", "no-1", "10.0.0.1", "1.2.3"])
def test_others_are_plain(text: str) -> None:
    assert f"version: {text}\n" == yaml_text.dump({"version": text})


def test_lines_are_a_block_and_nothing_is_an_alias() -> None:
    labels = {"a": "b"}
    found = yaml_text.dump({"first": labels, "second": labels, "expr": "one\nand two"})
    assert found == "first:\n  a: b\nsecond:\n  a: b\nexpr: |-\n  one\n  and two\n"
    assert yaml.safe_load(found)["expr"] == "one\nand two"
