"""The names that leave the agent: spelled in one place, each with its meaning, and each of use."""

import re
from pathlib import Path

import pytest

from latencyprobe_agent.vocabulary import conventions
from latencyprobe_agent.vocabulary.conventions import Attribute

AGENT = Path(conventions.__file__).parents[1]
ELSEWHERE = {
    path.relative_to(AGENT): path.read_text() for path in AGENT.rglob("*.py") if path != Path(conventions.__file__)
}
KINDS = Attribute | conventions.Event | conventions.Metric
CONSTANTS = {name for name, value in vars(conventions).items() if isinstance(value, KINDS)}


def test_a_name_without_a_meaning_is_refused():
    with pytest.raises(TypeError, match=r"latencyprobe.new: say what it means"):
        Attribute("latencyprobe.new")


def test_no_other_file_spells_a_name():
    spelled = re.compile(r"[\"']latencyprobe\.[a-z.]+|\b(?:Attribute|Event|Metric)\(\s*[\"']")
    assert [] == [f"{path}: {found[0]}" for path, text in ELSEWHERE.items() for found in spelled.finditer(text)]


def test_every_name_is_used():
    used = set(re.findall(r"\bnames\.([A-Z0-9_]+)", "".join(ELSEWHERE.values())))
    assert set() == CONSTANTS - used


def test_names_are_distinct():
    for names in (conventions.ATTRIBUTES, conventions.EVENTS, [metric.name for metric in conventions.METRICS]):
        assert len(names) == len(set(names))
