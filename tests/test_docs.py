"""What the pages tell people to type is understood: commands, options, choices, files, LatencyProbes."""

import re
from pathlib import Path

import click
import pytest
import yaml

from latencyprobe.group import Commands
from latencyprobe.parsing import problems
from tests.support.docs import PAGES, ROOT, Command, commands, simple

_COMMENT = re.compile(r"\s{3,}.*")  # behind an example of --help
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
OURS = [one for one in commands("latencyprobe") if re.fullmatch("[a-z]+", one.words[1])]
AS_PLUGIN = [one for one in commands("kubectl") if one.words[1] == "latencyprobe" and len(one.words) > 2]


def understood(command: click.Command, words: list[str], called: str) -> None:
    """Fail where an option, a choice or an argument is not what the command takes."""
    context = click.Context(command, info_name=called)
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found, f"no command {called} {words[0]}"
        understood(found, words[1:], f"{called} {words[0]}")
        return
    given, left, _ = command.make_parser(context).parse_args(list(words))
    assert left == []
    for parameter in command.params:
        value = given.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and isinstance(value, str):
            parameter.type_cast_value(context, value)


@pytest.mark.parametrize("command", [*OURS, *AS_PLUGIN], ids=lambda one: f"{one.page}: {' '.join(one.words)}")
def test_commands_of_the_pages_are_understood(command: Command) -> None:
    words = [word for word in command.words if word not in ("kubectl", "...")]
    understood(Commands("latencyprobe"), words[1:], "latencyprobe")


def examples(command: click.Command, called: str) -> list[tuple[str, ...]]:
    """The examples of --help of a command and of those below it."""
    lines = [_COMMENT.sub("", line.strip()) for line in (command.epilog or "").splitlines()]
    found = [words for line in lines for words in simple(line) if words[0] == "latencyprobe"]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=called)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below, name
            found += examples(below, name)
    return found


@pytest.mark.parametrize("words", examples(Commands("latencyprobe"), "latencyprobe"), ids=" ".join)
def test_examples_of_help_are_understood(words: tuple[str, ...]) -> None:
    understood(Commands("latencyprobe"), list(words[1:]), "latencyprobe")


def test_what_is_no_command_is_found_out() -> None:
    for words in (["report", "--nowhere"], ["report", "-o", "pdf"], ["reports"], ["tcprt", "show"]):
        with pytest.raises((click.ClickException, AssertionError)):
            understood(Commands("latencyprobe"), words, "latencyprobe")


def test_targets_of_the_pages_are_in_the_makefile() -> None:
    named = {(one.page, word) for one in commands("make") for word in one.words[1:2] if re.fullmatch("[a-z-]+", word)}
    assert named
    assert [f"{page}: make {word}" for page, word in sorted(named) if word not in TARGETS] == []


def test_files_of_the_repository_that_commands_name_are_there() -> None:
    paths = {
        (one.page, word)
        for program in ("latencyprobe", "kubectl", "helm")
        for one in commands(program)
        for word in one.words
        if word.startswith(("examples/", "charts/", "crds/")) and word.isascii() and "FOLDER" not in word
    }
    assert paths
    assert [f"{page}: {path}" for page, path in sorted(paths) if not (ROOT / Path(path)).exists()] == []


def written() -> list[tuple[str, object]]:
    """LatencyProbes of the pages, whole ones and parts of a spec, with the page."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"(?:```yaml|<<YAML)\n(.*?)(?:```|YAML)\n", page.read_text(), re.DOTALL)
        found += [(str(page.relative_to(ROOT)), yaml.safe_load(block)) for block in blocks]
    return found


@pytest.mark.parametrize(("page", "manifest"), written())
def test_latencyprobes_of_the_pages_are_valid(page: str, manifest: dict[str, object]) -> None:
    if "kind" not in manifest:
        some = [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": [8080]}]
        kind = {"apiVersion": "latencyprobe.dev/v1alpha1", "kind": "LatencyProbe", "metadata": {"name": "part"}}
        manifest = kind | {"spec": {"targets": some} | manifest}
    assert problems(manifest, source=page) == []
