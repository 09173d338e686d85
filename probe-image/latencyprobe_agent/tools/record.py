"""`latencyprobe record`: the newest events of each CPU, kept in memory, and written when something took too long."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import msgspec

from latencyprobe.errors import OutputError
from latencyprobe.options import DURATION, OUTPUT, Duration
from latencyprobe.output import utf_8
from latencyprobe.report import units
from latencyprobe_agent import config as settings
from latencyprobe_agent.kernel.recording import BYTES_PER_CPU, CONTENTS, RecorderPrograms
from latencyprobe_agent.recording import html, text
from latencyprobe_agent.recording.snapshot import Snapshot, SnapshotError, decode
from latencyprobe_agent.signals.trackers import NET, OFFCPU, RECORDER, TTFB, WAKEUP, Tracker
from latencyprobe_agent.symbols.symbolizer import Symbolizer
from latencyprobe_agent.tools.asking import Asked, answer, ask
from latencyprobe_agent.tools.recording import Recording, Snapshots, Taken
from latencyprobe_agent.tools.syscalls import idle
from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.tools.tracking import Ended, ended
from latencyprobe_agent.tools.watching import STACKS, WHOSE, Watching, asked, slower_than, wanted_stacks
from latencyprobe_agent.vocabulary.records import StackOptionFlags

_ON: dict[str, Tracker] = {"syscalls": RECORDER, "offcpu": OFFCPU, "wakeup": WAKEUP, "ttfb": TTFB, "net": NET}
_ROW = "%-15s %-17s %-15s %-7s %9s %9s %8s %8s  %s"
_HEADER = ("TIME", "TRIGGER", "COMM", "TID", "DURATION", "COVERED", "EVENTS", "SUPPRESS", "FILE")
_FOLDER = click.option(
    "--dir",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    metavar="DIR",
    help="Where the snapshots are.",
)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


class Size(click.ParamType[int]):
    """A size such as 1.5MiB, in bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        match = re.match(r"(\d+(?:\.\d+)?)(KiB|MiB)\Z", str(value))
        size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
        if not 1 << 12 <= size <= 1 << 28:
            self.fail(f"{value!r} is no size from 4KiB to 256MiB, such as 1.5MiB", param, ctx)
        return size


class Contents(click.ParamType[tuple[str, ...]]):
    """Names of CONTENTS, separated by commas."""

    name = "contents"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return them in the order of CONTENTS."""
        names = value if isinstance(value, tuple) else str(value).split(",")
        if unknown := [name for name in names if name not in CONTENTS]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(CONTENTS)}", param, ctx)
        return tuple(name for name in CONTENTS if name in names)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((*WHOSE, slower_than("100ms"), DURATION)):
        command = option(command)
    return command


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  latencyprobe record --comm postgres --slower-than 200ms --dir /var/tmp
  latencyprobe record --all --on wakeup --slower-than 50ms --with switches,wakeups
  latencyprobe record trigger --dir /var/tmp              a snapshot now, from the recorder that writes there
  latencyprobe record show FILE
  latencyprobe record show FILE -o html > timeline.html
\b
At most one snapshot a second; SUPPRESS counts the triggers since the one before that got none. COVERED: how far back
before its trigger every CPU's events reach. Calls in which programs wait for work are kept, but are no trigger.
It slows down every system call of the host. Needs root, or CAP_BPF and CAP_PERFMON.
""",
)
@click.option("--on", type=click.Choice(list(_ON)), default="syscalls", show_default=True, help="What triggers.")
@click.option("--window", type=Duration(), default="1s", show_default=True, help="Before the trigger.")
@click.option(
    "--with",
    "contents",
    type=Contents(),
    default=",".join(CONTENTS),
    show_default=True,
    metavar="WHAT,...",
    help="What is kept.",
)
@click.option("--record-above", type=Duration(), help="Keep only system calls that take longer; else all.")
@click.option(
    "--buffer",
    type=Size(),
    default=f"{BYTES_PER_CPU / (1 << 20)}MiB",
    show_default=True,
    help="Of each CPU: 96 bytes an event.",
)
@click.option(
    "--stacks",
    type=click.Choice(list(STACKS)),
    default="kernel",
    show_default=True,
    help="Of the trigger: where it waited; user: and who called, too.",
)
@click.option("--all-waits", is_flag=True, help="Calls in which programs wait for work trigger, too.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End by itself after so many snapshots.")
@_FOLDER
@_options
@OUTPUT
@click.pass_context
def record(context: click.Context, /, **given: Any) -> None:
    """Keep the newest events of each CPU, and write them down when something takes long."""
    if context.invoked_subcommand is None:
        _record(given)


@record.command()
@_FOLDER
def trigger(folder: Path) -> None:
    """Have the recorder that writes to DIR take a snapshot now."""
    click.echo(ask(folder))


@record.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Choice(["text", "html", "json"]), default="text", show_default=True)
def show(file: Path, output: str) -> None:
    """Show a snapshot: why it was taken, what it covers, what each CPU did. json: the header, and a line an event."""
    if output != "text":
        utf_8()
    with file.open("rb") as content:
        try:
            snapshot = decode(content)
        except SnapshotError as error:
            raise SnapshotError(f"{file} {error}") from error
    if output == "html":
        click.echo(html.render(snapshot), nl=False)
        return
    for line in text.lines(snapshot) if output == "text" else text.objects(snapshot):
        click.echo(line)


@dataclass(frozen=True)
class _Watching(Watching):
    @property
    def tick_s(self) -> float:
        """How often to look whether somebody asks for a snapshot."""
        return 0.25


def _record(given: dict[str, Any]) -> None:
    knobs = replace(
        asked(given),
        at_once=True,
        left_out=frozenset() if given["all_waits"] else idle(),
        stacks=wanted_stacks(given["stacks"]),
    )
    on, folder = given["on"], given["folder"]
    tracker = _ON[on]
    if not tracker.stacks:
        knobs = replace(knobs, stacks=StackOptionFlags(0))
    elif on == "offcpu":
        knobs = replace(knobs, stacks=knobs.stacks & StackOptionFlags.KERNEL)
    knobs = replace(knobs, gc_threshold_ns=tracker.gc_threshold_ns)
    above_ns = round((given["record_above"] or 0) * 1e9)
    recording = Recording(on, knobs, round(given["window"] * 1e9), given["contents"], above_ns, folder, given["count"])
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder}: it cannot be written to")
    watching = _Watching(knobs, given["duration"], given["output"], stats=False)
    with ExitStack() as stack:
        asking = stack.enter_context(Asked(folder))
        symbols = stack.enter_context(Symbolizer())
        recorder = RecorderPrograms.start(
            settings.from_environment().bpf_dir,
            replace(knobs, keep_above_ns=above_ns),
            frozenset(recording.contents),
            calls_trigger=on == "syscalls",
            bytes_per_cpu=given["buffer"],
        )
        if on != "syscalls":
            stack.enter_context(recorder)

        def losses() -> dict[str, int]:
            return {what: n for what, n in (recorder.told() | recorder.lost()).items() if n}

        def begin() -> None:
            if watching.output == "table":
                click.echo(_ROW % _HEADER)

        snapshots = Snapshots(recording, recorder, symbols, losses)
        programs = recorder if on == "syscalls" else None
        ending = False  # a second signal would end it without its last words
        for batch, clock in ended(tracker, watching, attached=begin, programs=programs):  # which closes its programs
            for taken in _taken(snapshots, batch, asking, clock.offset_ns):
                (_json if watching.output == "json" else _row)(taken)
            if snapshots.full and not ending:
                ending = True
                signal.raise_signal(signal.SIGINT)
        if programs is None:
            lost = ", ".join(f"{n} ({what})" for what, n in losses().items())
            click.echo(f"not kept: {lost or 'none'}", err=True)
    click.echo(f"snapshots: {snapshots.taken}; suppressed triggers: {snapshots.suppressed}", err=True)


def _taken(snapshots: Snapshots, batch: list[Ended], asking: Asked, offset_ns: int) -> Iterator[Taken]:
    """Yield the snapshots of a batch of records, and of who asks for one; not more than there may be."""
    for one, stacks in batch:
        if not snapshots.full and (taken := snapshots.of_record(one, stacks, offset_ns)):
            yield taken
    for who in asking.waiting():
        if not snapshots.full:
            taken = snapshots.on_request(offset_ns)
            answer(who, taken.file.resolve() if taken else None)
            if taken:
                yield taken


def covered_ns(snapshot: Snapshot) -> int:
    """Return how far back before the trigger the events of all CPUs reach."""
    header = snapshot.header
    return min((max(header.trigger.time_ns - cpu.from_ns, 0) for cpu in header.cpus), default=0)


def _row(taken: Taken) -> None:
    header = taken.snapshot.header
    why = header.trigger
    took = units.duration(why.duration_ns) if why.tracker else "-"
    whose = (why.comm or "-", why.tid) if why.tracker else ("-", "-")
    events = sum(cpu.events for cpu in header.cpus)
    clock = timestamp(why.time_ns + header.unix_offset_ns)[11:26]
    covered = units.duration(covered_ns(taken.snapshot))
    name = why.what or why.tracker or "asked for"
    click.echo(_ROW % (clock, name, *whose, took, covered, events, header.suppressed, taken.file))


def _json(taken: Taken) -> None:
    header = taken.snapshot.header
    found = {
        "time": timestamp(header.trigger.time_ns + header.unix_offset_ns),
        "file": str(taken.file),
        "trigger": header.trigger,
        "covered_ns": covered_ns(taken.snapshot),
        "suppressed": header.suppressed,
        "cpus": header.cpus,
        "lost": header.lost,
    }
    click.echo(msgspec.json.encode(found))
