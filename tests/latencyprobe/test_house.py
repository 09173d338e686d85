"""The house rules that no other tool holds: layers of imports, generated files, and documents that are true."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs/design"
SUBJECTS = {  # of tests that are about several modules, about none, or about one subject of a module that has more
    "latencyprobe": {
        "bounds_harm",
        "crds",
        "dependencies",
        "house",
        "parsing_fuzzed",
        "report_html_explained",
        "reporting_past",
        "reporting_shared_store",
        "rules_promtool",
        "store_sqlite_faults",
        "store_sqlite_time",
        "store_volumes",
    },
    "latencyprobe_agent": {
        "cli_run_calls",
        "cli_run_causes",
        "cli_run_secrets",
        "cli_run_stacks",
        "edits",
        "edits_under_load",
        "ending",
        "flame_pictures",
        "injection",
        "kills",
        "loop_pressure_cgroups",
        "measure_clocks",
        "measure_rules_sets",
        "remote_join",
        "sli_slicing_evidence",
        "symbols_hostile",
        "telemetry_metrics_clock",
        "telemetry_metrics_coming_back",
        "tenants",
        "unsent",
        "versions",
    },
    "latencyprobe_operator": {
        "app_deletions",
        "app_hours",
        "app_kills",
        "app_outages",
        "app_store",
        "cluster_election_handovers",
        "cluster_election_slow",
        "cluster_informer_lines",
        "directory_asked_room",
        "directory_ingest_away",
        "directory_ingest_kills",
        "directory_server_forged",
        "directory_server_fuzzed",
        "directory_server_refusals",
        "imports",
        "plan_planner_fuzzed",
        "plan_planner_incremental",
        "reports_evaluation_store",
    },
}
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"), *DESIGN.glob("*.md")])
TESTS = ROOT / "tests"
ROOMS = [ROOT / "latencyprobe", ROOT / "operator", ROOT / "probe-image"]
SHARED = {"support", "truth"}  # folders that every test may import from


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dangling_citations(path: Path, folder: str) -> list[str]:
    """Citations as `docs/design/evidence.md, "The join"` that lead nowhere; `folder`: what precedes the page's name."""
    text = re.sub(r"\n\s*(?:#|\*|//)?\s*", " ", path.read_text(errors="replace"))
    wrong = []
    for page, headings in re.findall(rf'(?<![\w/.-]){folder}([\w-]+\.md)((?:(?:,| and) "[^"]+")*)', text):
        if not (DESIGN / page).exists():
            wrong.append(f"{path.name}: {page}")
            continue
        known = re.findall(r"^#+ (.*)$", (DESIGN / page).read_text(), re.MULTILINE)
        wrong += [f'{path.name}: {page}, "{one}"' for one in re.findall('"([^"]+)"', headings) if one not in known]
    return wrong


def test_imports_keep_to_their_rooms():
    # in a process of its own: it reconfigures logging
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_a_module_that_says_that_it_is_pure_speaks_to_nobody():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (world,) = (set(one["forbidden_modules"]) for one in contracts if one["name"] == "the middle is pure")
    files = (file for room in ROOMS for file in room.rglob("*.py"))
    said = [file for file in files if re.search(r"\bPure\b", docstring(file))]
    assert len(said) > 50
    assert {} == {
        ids(file): found for file in said if (found := {name.partition(".")[0] for name in imports(file)} & world)
    }


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def imports(path: Path) -> set[str]:
    """The modules that a file imports from, dotted."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    of_modules = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return plain | {f"{node.module}.{alias.name}" for node in of_modules for alias in node.names}


@pytest.mark.parametrize("side", ["agent", "operator"])
def test_the_picture_of_the_rooms_has_their_imports(side):
    (folder,) = find_spec(f"latencyprobe_{side}").submodule_search_locations
    below = defaultdict(set)
    for file in Path(folder).rglob("[a-z]*.py"):
        room = file.relative_to(folder).with_suffix("").parts[0]
        below[room] |= {name.split(".")[1] for name in imports(file) if name.startswith(f"latencyprobe_{side}.")} - {
            room
        }

    def reached(rooms):
        return rooms.union(*(reached(below[room]) for room in rooms))

    direct = {room: rooms - set().union(*(reached(below[one]) for one in rooms)) for room, rooms in [*below.items()]}
    lines = re.search(rf"subgraph {side}\n(.*?)\n  end", (DESIGN / "README.md").read_text(), re.DOTALL)[1].splitlines()
    drawn = {
        room.strip(): set(re.findall(r"\w+", rooms)) for room, _, rooms in (line.partition("-->") for line in lines)
    }
    assert {room: rooms for room, rooms in direct.items() if rooms} == drawn


def test_tests_of_one_folder_do_not_import_those_of_another():
    foreign = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in TESTS.rglob("*.py")
        for name in imports(file)
        if name.startswith("tests.") and name.split(".")[1] not in {*SHARED, file.relative_to(TESTS).parts[0]}
    ]
    assert foreign == [], f"only {sorted(SHARED)} are for all"


def test_no_file_of_ours_is_long() -> None:
    """Generated files and tables apart: 300 lines of Python, 350 of C."""
    tables = {"records.py", "conventions.py", "events.h", "histogram.h"}
    files = [file for room in ROOMS for file in room.rglob("*.py")] + sorted((ROOT / "bpf").glob("*.[ch]"))
    lengths = {file.name: len(file.read_text().splitlines()) for file in files if file.name not in tables}
    assert {} == {name: n for name, n in lengths.items() if n > (300 if name.endswith(".py") else 350)}


def test_no_class_has_more_state_than_a_reader_keeps_in_mind() -> None:
    """At most ten attributes that its methods assign."""
    found = {}
    for file in (file for room in ROOMS for file in room.rglob("*.py")):
        classes = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef))
        for one in (node for node in classes if not node.name.startswith("Fake")):
            stored = (
                node for node in ast.walk(one) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            )
            own = {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}
            found[f"{file.name}: {one.name}"] = len(own)
    assert {} == {name: n for name, n in found.items() if n > 10}


@pytest.mark.parametrize("package", SUBJECTS)
def test_each_test_file_is_named_after_a_module(package):
    """test_ROOM_MODULE.py: who moves a module moves its test."""
    (folder,) = find_spec(package).submodule_search_locations
    modules = {"_".join(file.relative_to(folder).with_suffix("").parts) for file in Path(folder).rglob("*.py")}
    tests = {file.stem.removeprefix("test_") for file in (TESTS / package).glob("test_*.py")}
    assert tests - modules == SUBJECTS[package]


def test_docs_telemetry_md_is_what_make_gen_writes():
    written = subprocess.check_output([sys.executable, ROOT / "scripts/gen_telemetry.py", "-"], text=True)
    assert written == (ROOT / "docs/telemetry.md").read_text(), "run `make gen`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_in_documents_lead_somewhere(document):
    links = re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text())
    assert [] == [link for link in links if not (document.parent / link).exists()]


@pytest.mark.parametrize("index", [ROOT / "docs/README.md", ROOT / "docs/design/README.md"], ids=["docs", "design"])
def test_an_index_leads_to_every_page_beside_it(index):
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index.read_text()))
    assert {page.name for page in index.parent.glob("*.md")} - {"README.md"} <= linked


@pytest.mark.parametrize("room", ["bpf", "latencyprobe", "operator", "probe-image", "tests", "scripts", "benchmarks"])
def test_citations_of_the_design_lead_to_a_page_and_a_heading(room):
    sources = [path for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".c", ".h", "") and path.is_file()]
    assert [] == [wrong for path in sources for wrong in dangling_citations(path, "docs/design/")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_citations_in_documents_lead_to_a_page_and_a_heading(document):
    assert [] == dangling_citations(document, "" if document.parent == DESIGN else "docs/design/")


def test_a_citation_of_a_missing_page_or_heading_is_found(tmp_path):
    cited = "docs/" + "design"  # apart, or this file cites what does not exist
    source = tmp_path / "source.py"
    source.write_text(f'# {cited}/evidence.md, "The\n# join" and "None"; {cited}/no.md. {cited}/evidence.md, "Proof"\n')
    assert dangling_citations(source, "docs/design/") == ['source.py: evidence.md, "None"', "source.py: no.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_commands_in_documents_exist(document):
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", document.read_text(), re.DOTALL))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {entry_point.name for entry_point in entry_points(group="latencyprobe.commands")}
    assert set(re.findall(r"^(?:`|[#$ ]*)make ([a-z]+)", code, re.MULTILINE)) <= targets
    assert set(re.findall(r"(?:^|[`/ ])latencyprobe ([a-z]+)(?=[ `\n])", code, re.MULTILINE)) <= commands


def run_with_conftest(folder: Path, ci: str, **files: str) -> subprocess.CompletedProcess[str]:
    """What pytest says of these files beside tests/conftest.py."""
    for name, text in {"conftest": (TESTS / "conftest.py").read_text(), **files}.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, folder]
    return subprocess.run(command, env=os.environ | {"CI": ci}, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("ci", ["true", ""])
@pytest.mark.parametrize(
    ("reason", "allowed"), [("no clang on this machine", False), ("NetworkPolicy enforcement", True)]
)
def test_ci_fails_on_a_skip_without_a_listed_reason(tmp_path, ci, reason, allowed):
    run = run_with_conftest(
        tmp_path,
        ci,
        test_one=f"import pytest\ndef test_one():\n    pytest.skip({reason!r})\n",
        test_module=f"import pytest\npytest.skip({reason!r}, allow_module_level=True)\n",
    )
    expected = "2 skipped" if allowed or not ci else "skipped in CI"
    assert expected in run.stdout, run.stdout
    assert (run.returncode in (0, 5)) == ("2 skipped" in run.stdout)


SECOND_TRY = """
import pytest
from pathlib import Path

@pytest.mark.root
def test_stalled(tmp_path_factory):
    been_here = Path(__file__).with_name("been-here")
    if not been_here.exists():
        been_here.touch()
        raise TimeoutError("the neighbour\\nand more")

@pytest.mark.root
def test_broken():
    assert "found" == "expected"

def test_pure():
    assert False
"""


@pytest.mark.long
def test_each_second_try_in_ci_is_named_at_the_end_of_the_run(tmp_path):
    said = run_with_conftest(tmp_path, "true", test_parts=SECOND_TRY).stdout
    *_, last = said.split("second tries")
    assert "test_parts.py::test_stalled: passed; at first, in its call: TimeoutError: the neighbour" in last
    assert (
        "test_parts.py::test_broken: failed; at first, in its call: AssertionError: assert 'found' == 'expected'"
        in last
    )
    assert "test_pure" not in last


@pytest.mark.long
def test_without_ci_and_where_all_goes_well_there_is_no_second_try(tmp_path):
    assert "second tries" not in run_with_conftest(tmp_path, "", test_parts=SECOND_TRY).stdout
    assert "second tries" not in run_with_conftest(tmp_path, "true", test_parts="def test_one(): pass").stdout
