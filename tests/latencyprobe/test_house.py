"""The house rules that no other tool holds: layers of imports, generated files, and documents that are true."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])


def ids(path: Path) -> str:
    return path.name


def test_imports_keep_to_their_rooms():
    # in a process of its own: it reconfigures logging
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_commands_in_documents_exist(document):
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", document.read_text(), re.DOTALL))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {entry_point.name for entry_point in entry_points(group="latencyprobe.commands")}
    assert set(re.findall(r"^(?:`|[#$ ]*)make ([a-z]+)", code, re.MULTILINE)) <= targets
    assert set(re.findall(r"(?:^|[`/ ])latencyprobe ([a-z]+)(?=[ `\n])", code, re.MULTILINE)) <= commands


@pytest.mark.parametrize("ci", ["true", ""])
@pytest.mark.parametrize(
    ("reason", "allowed"), [("no clang on this machine", False), ("NetworkPolicy enforcement", True)]
)
def test_ci_fails_on_a_skip_without_a_listed_reason(tmp_path, ci, reason, allowed):
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_one.py").write_text(f"import pytest\ndef test_one():\n    pytest.skip({reason!r})\n")
    (tmp_path / "test_module.py").write_text(f"import pytest\npytest.skip({reason!r}, allow_module_level=True)\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, tmp_path],
        env=os.environ | {"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = "2 skipped" if allowed or not ci else "skipped in CI"
    assert expected in run.stdout, run.stdout
    assert (run.returncode in (0, 5)) == ("2 skipped" in run.stdout)
