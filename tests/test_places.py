"""The places of each kind of change, as CONTRIBUTING.md lists them: a forgotten one fails here.

What types, the linter and other tests hold already is not here.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from latencyprobe import exclusions, stages, unsent
from latencyprobe.report import explanation
from latencyprobe.slo.evaluate import State
from latencyprobe.spec import EvidenceSpec, LatencyProbeSpec
from latencyprobe_agent.config import Config
from latencyprobe_agent.signals.table import EVIDENCE, EvidenceSignal
from latencyprobe_agent.vocabulary import conventions
from latencyprobe_agent.vocabulary.records import ExchangeFlags, UnsentReason
from latencyprobe_agent.vocabulary.values import REMOTE_JOINS

ROOT = Path(__file__).parents[1]
of_signals = pytest.mark.parametrize("signal", EVIDENCE, ids=lambda signal: signal.switch)


def text(path: str) -> str:
    return (ROOT / path).read_text()


(VERSION,) = yaml.safe_load(text("crds/latencyreport.yaml"))["spec"]["versions"]
REPORT = VERSION["schema"]["openAPIV3Schema"]["properties"]["results"]["items"]["properties"]  # of one objective


def test_the_pages_name_the_interval_at_which_agents_export_metrics() -> None:
    figures = {
        str(page.relative_to(ROOT)): set(re.findall(r"(\d+) s\W+`OTEL_METRIC_EXPORT_INTERVAL`", page.read_text()))
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert {"docs/rules.md", "docs/slo.md"} <= {page for page, found in figures.items() if found}
    assert set().union(*figures.values()) == {f"{Config().metric_interval_s:.0f}"}


def test_the_files_that_contributing_names_exist() -> None:
    folders = ("bpf", "crds", "docs", "latencyprobe", "operator", "probe-image", "release", "tests")
    files = [*ROOT.glob("*.*"), *(file for folder in folders for file in (ROOT / folder).rglob("*.*"))]
    named = set(re.findall(r"`([a-z_./]+\.(?:py|h|md|yaml|toml))`", text("CONTRIBUTING.md")))
    assert len(named) > 20
    assert [] == [name for name in sorted(named) if not any(str(file).endswith(f"/{name}") for file in files)]


# -- a signal


@of_signals
def test_a_signal_has_an_object_that_asks_for_its_switch_and_writes_to_its_ring(signal: EvidenceSignal) -> None:
    source = text(f"bpf/{signal.name}.bpf.c")
    source += "".join(text(f"bpf/{name}") for name in re.findall(r'#include "(\w+\.bpf\.h)"', source))
    assert f"}} {signal.ring} SEC" in source
    assert all(f"EVIDENCE_{switch.upper()}" in source for switch in signal.asked_by)


@of_signals
def test_a_signal_has_a_row_for_users(signal: EvidenceSignal) -> None:
    default = any(getattr(EvidenceSpec(), switch) for switch in signal.asked_by)
    assert f"\n| `{signal.switch}` | {'on' if default else 'off'} |" in text("docs/evidence.md")


@of_signals
def test_a_signal_has_tests_of_its_decoder_and_of_its_programs(signal: EvidenceSignal) -> None:
    module = inspect.getmodule(signal.columns)
    assert module is not None
    assert (ROOT / f"tests/latencyprobe_agent/test_signals_{module.__name__.rpartition('.')[2]}.py").exists()
    assert list(ROOT.glob(f"tests/bpf/test_{signal.switch}*.py"))


# -- a reason why bytes waited to be sent


@pytest.mark.parametrize("reason", unsent.REASONS, ids=lambda reason: reason.name)
def test_a_reason_of_unsent_bytes_is_explained_and_some_socket_waits_for_it(reason: unsent.Reason) -> None:
    assert (
        f"\n| `{reason.name}` |" in text("docs/evidence.md").partition("## Bytes that waited")[2].partition("\n## ")[0]
    )
    assert f"UnsentReason.{reason.name.upper()}" in text("tests/bpf/test_unsent.py")
    assert UnsentReason[reason.name.upper()] == reason.code


# -- a stage


@pytest.mark.parametrize("stage", stages.BY_NAME)
def test_a_stage_is_explained_where_users_read_how_they_are_cut(stage: str) -> None:
    assert re.search(rf"\b{stage}\b", text("docs/measurement.md").partition("## 4. Stages")[2].partition("\n## ")[0])


@pytest.mark.parametrize("stage", stages.BY_NAME.values(), ids=lambda stage: stage.name)
def test_explain_says_where_to_look_further_of_each_stage(stage: stages.Stage) -> None:
    assert explanation.KIND.get(stage, stage) in explanation.MORE


def test_reports_have_room_for_all_stages() -> None:
    slow = REPORT["slowest"]["items"]["properties"]
    assert len(stages.BY_NAME) <= min(REPORT["badByStage"]["maxItems"], slow["stages"]["maxItems"])


# -- an exclusion


@pytest.mark.parametrize("name", exclusions.BY_NAME)
def test_an_exclusion_is_explained_where_users_read_the_coverage(name: str) -> None:
    assert (
        f"| {exclusions.BY_NAME[name].word} | `{name}` |"
        in text("docs/slo.md").partition("## 5. Turns that are no RPC")[2]
    )


def test_reports_have_room_for_all_exclusions() -> None:
    exclusion = REPORT["coverage"]["properties"]["exclusions"]
    assert len(exclusions.ALL) + 1 <= exclusion["maxItems"], "those of another version are one more"


# -- a flag of exchanges


@pytest.mark.parametrize("flag", ExchangeFlags)
def test_a_flag_is_set_by_a_program_or_by_who_measures(flag: ExchangeFlags) -> None:
    programs = "".join(path.read_text() for path in (ROOT / "bpf").glob("*.bpf.[ch]"))
    measured = text("probe-image/latencyprobe_agent/measure/halves.py")
    assert re.search(rf"\bFLAG_{flag.name}\b", programs) or f"ExchangeFlags.{flag.name})" in measured


# -- a reason of a condition

REASONS = (
    *("operator/latencyprobe_operator/status/conditions.py", "operator/latencyprobe_operator/status/placement.py"),
    *("operator/latencyprobe_operator/status/registry.py", "operator/latencyprobe_operator/plan/targets.py"),
    *(f"probe-image/latencyprobe_agent/kernel/{name}.py" for name in ("hooks", "libbpf_abi", "loader", "programs")),
    *("probe-image/latencyprobe_agent/identity/folders.py", "latencyprobe/errors.py"),
)
ALL_IS_WELL = {"AgentsReady", "ProbesReady"}
NO_REASONS = {"DaemonSet", "LatencyProbes"}


def test_a_reason_for_which_something_is_not_measured_is_where_users_look_for_it() -> None:
    words = {word for path in REASONS for word in re.findall(r'"((?:[A-Z][a-z]+){2,})"', text(path))}
    found = words - ALL_IS_WELL - NO_REASONS
    assert len(found) > 30
    page = text("docs/cluster.md").partition("## When something is missing")[2]
    assert [] == [word for word in sorted(found) if f"`{word}`" not in page]


# -- what becomes of halves in the remote join


def test_what_becomes_of_halves_in_the_remote_join_is_explained() -> None:
    agent, operator = "probe-image/latencyprobe_agent", "operator/latencyprobe_operator"
    refused = set(re.findall(r'return [^\n]*"([a-z_]+)"', text(f"{operator}/directory/remote_join.py"))) | {"directory"}
    dropped = set(re.findall(r'dropped\["([a-z_]+)"\]', text(f"{agent}/directory/remote_join.py")))
    counted = set(re.findall(r'counts\["([a-z_]+)"\]|, "([a-z]+)"\)', text(f"{agent}/measure/remote_join.py")))
    outcomes = {one or other for one, other in counted}
    assert set(REMOTE_JOINS) == outcomes | {f"refused_{one}" for one in refused} | {f"dropped_{one}" for one in dropped}


# -- an attribute of spans and their events


@pytest.mark.parametrize("name", [name for name in conventions.ATTRIBUTES if name.span or name.event])
def test_an_attribute_of_spans_is_looked_at_by_a_test(name: conventions.Attribute) -> None:
    (constant,) = (key for key, value in vars(conventions).items() if value is name)
    tests = "".join(path.read_text() for path in (ROOT / "tests/latencyprobe_agent").glob("test_*.py"))
    assert re.search(rf'["\']{re.escape(name)}["\']|\b(names|conventions)\.{constant}\b', tests)


# -- a state of objectives


@pytest.mark.parametrize("state", State)
def test_a_state_is_explained_and_some_counts_lead_to_it(state: State) -> None:
    assert f"**{state.value}**" in text("docs/slo.md")
    assert re.search(rf"\bState\.{state.name}\b", text("tests/latencyprobe/test_slo_evaluate.py"))


# -- a field of the spec


def fields(kind: Any) -> Iterator[str]:
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield field.encode_name
            yield from fields(field.type)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from fields(kind.item_type)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            yield from fields(one)


def undescribed(schema: dict[str, Any], at: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if "description" not in field:
            yield f"{at}.{name}"
        if not name.endswith("Selector"):  # Kubernetes' own
            yield from undescribed(field.get("items", field), f"{at}.{name}")


def test_kubectl_explain_says_something_of_every_field_of_the_spec() -> None:
    (version,) = yaml.safe_load(text("crds/latencyprobe.yaml"))["spec"]["versions"]
    assert [] == list(undescribed(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec"))


# of every label selector; signals have their own page
ELSEWHERE = {"matchLabels", "matchExpressions", "key", "operator", "values", *EvidenceSpec.__struct_fields__}


@pytest.mark.parametrize("field", sorted({*fields(msgspec.inspect.type_info(LatencyProbeSpec))} - ELSEWHERE))
def test_a_field_of_the_spec_is_explained(field: str) -> None:
    assert re.search(rf"`{field}(\[\])?`", text("docs/api.md"))
