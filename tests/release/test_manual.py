"""release/manual.py: every command has a page that man prints, with its examples; shells complete."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from release import manual

EPOCH = 1_700_000_000
COMMANDS = sorted(point.name for point in entry_points(group="latencyprobe.commands"))


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    manual.write(folder, "1.2.3", EPOCH)
    return folder


def test_program_and_each_command_have_a_page(share: Path) -> None:
    names = {path.name for path in (share / "man/man1").iterdir()}
    assert names >= {"latencyprobe.1", "latencyprobe-record-show.1", *(f"latencyprobe-{name}.1" for name in COMMANDS)}


def test_page_has_version_date_options_and_the_examples_of_the_help(share: Path) -> None:
    page = (share / "man/man1/latencyprobe-run.1").read_text()

    assert page.startswith('.TH "LATENCYPROBE-RUN" "1" "2023-11-14" "1.2.3" "latencyprobe run Manual"\n.SH NAME\n')
    assert "latencyprobe\\-run \\- Measure the RPCs of this host, without a cluster\n" in page
    assert "\\fB\\-\\-port\\fP PORT" in page
    assert ".SH EXAMPLES\n.nf\n  latencyprobe run \\-\\-port 6379\n" in page
    assert ".SH NOTES\n.PP\nMeasures until Ctrl\\-C" in page


def test_page_of_the_program_names_each_command(share: Path) -> None:
    page = (share / "man/man1/latencyprobe.1").read_text()
    assert re.findall(r"See \\fBlatencyprobe-(\w+)\(1\)", page) == COMMANDS


def test_man_prints_each_page_without_a_warning(share: Path) -> None:
    if not shutil.which("groff"):
        pytest.skip("no groff on this machine")
    for page in sorted((share / "man/man1").iterdir()):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True, check=False, env=os.environ
        )
        assert (done.returncode, done.stderr) == (0, ""), page.name
        assert "\x08" not in page.read_text(), page.name


def test_sections_of_an_epilog() -> None:
    epilog = "\b\nExamples:\n  run\n  .hidden \\ -x\n\b\nA note\nof two lines.\n\b\nShell completion:\n  eval\n"

    assert manual.sections(epilog) == (
        ".SH EXAMPLES\n.nf\n  run\n  .hidden \\e \\-x\n.fi\n.SH SHELL COMPLETION\n.nf\n  eval\n.fi\n"
        ".SH NOTES\n.PP\nA note\nof two lines.\n"
    )
    assert manual.sections("") == ""
    assert "\n\\&.so\n" in manual.sections("\b\nExamples:\n.so\n")


@pytest.mark.parametrize("shell", manual.COMPLETIONS)
def test_shells_have_their_script_where_they_look_for_it(share: Path, shell: str) -> None:
    script = (share / manual.COMPLETIONS[shell]).read_text()
    assert f"_LATENCYPROBE_COMPLETE={shell}_complete" in script
    if shell == "zsh":
        assert script.startswith("#compdef latencyprobe\n"), "what its autoload goes by"


@pytest.mark.parametrize(("typed", "found"), [("vali", ["validate"]), ("run --dur", ["--duration"])])
def test_bash_completes_commands_and_options(share: Path, typed: str, found: list[str]) -> None:
    words = ["latencyprobe", *typed.split()]
    asks = (
        f"source {share / manual.COMPLETIONS['bash']}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        '_latencyprobe_completion latencyprobe; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", asks], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == found
