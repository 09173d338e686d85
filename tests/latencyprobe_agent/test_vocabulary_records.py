"""records.py and histogram.h are what their generators write from the sources of today (needs clang and bpftool)."""

import runpy
import shutil
from pathlib import Path

import pytest

from latencyprobe_agent.vocabulary import records

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not shutil.which("clang-19") or not shutil.which("bpftool"), reason="needs clang-19 and bpftool")
def test_records_are_generated_from_events_h(monkeypatch):
    monkeypatch.chdir(ROOT)
    generator = runpy.run_path("scripts/gen_records.py")

    assert generator["records_source"]() == Path(records.__file__).read_text(), "run `make gen`"


def test_histogram_h_is_generated(monkeypatch):
    monkeypatch.chdir(ROOT)

    assert runpy.run_path("scripts/gen_histogram.py")["header"]() == Path("bpf/histogram.h").read_text()


def test_the_exchange_record_has_no_hole():
    fields = records.EXCHANGE.fields.values()

    assert records.EXCHANGE.itemsize == sum(dtype.itemsize for dtype, _ in fields)
