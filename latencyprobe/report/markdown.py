"""The report as Markdown, as GitHub and GitLab read it: for an issue, in the words of the table. Pure.

An issue holds 65,536 characters: what does not fit is left out, of the best objectives first, and said. Names come from
others: none of them becomes markup, a link or a mention.
"""

import re
from collections.abc import Iterable, Sequence

from latencyprobe.report import headline, links, notes, units, words
from latencyprobe.report.model import LatencyReport, Result
from latencyprobe.report.words import Exchange
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable

MAX_CHARACTERS = 60_000
_LEAST = 1_000  # of a namespace: its head at the longest, and what says that nothing else found room
_SAID = 200  # characters of the latter
_HEAD = ("| State | Objective | SLI | goal | budget left |", "| --- | --- | ---: | ---: | ---: |")
_SHOWN = 5  # of the slowest, as in the table
_SPECIAL = re.compile(r"[\\`*\[\]<>|~$&]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
_REFERENCE = re.compile(r"(?<!\w)[@#!%](?=\w)|(?<=\w)@(?=\w)")  # @user, #1, GitLab's !1 and %1, an address of mail
_OPENING = re.compile(r"^(?:[-+=#](?!\w)|#+|\d+(?=[.)](?:\s|$)))")
_NO_LINK = "\u2060"  # a word joiner: it has no width


class _Room:
    """How many characters are left. Lines are taken together or not at all, and after some that were not none are."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def takes(self, lines: Sequence[str]) -> bool:
        """Return whether there was room for these."""
        self._left -= sum(len(line) + 1 for line in lines)
        return self._left >= 0


def render(reports: Sequence[LatencyReport], trace_url: str = "", said: Sequence[str] = ()) -> str:
    """Return the Markdown of these namespaces. `trace_url`: an address that links.py accepts; empty for no links.
    `said`: sentences about all of it."""
    parts = [escaped(one) for one in said]
    if not reports:
        return "\n\n".join([*parts, escaped(words.NO_REPORT)])
    shown = _worst(reports, MAX_CHARACTERS // _LEAST)
    parts += [_namespace(found, trace_url, MAX_CHARACTERS // len(shown)) for found in shown]
    if more := len(reports) - len(shown):
        parts.append(f"{units.number(more, 'more namespace')} found no room: ask for one by its name.")
    return "\n\n".join(parts)


def _worst(reports: Sequence[LatencyReport], most: int) -> Sequence[LatencyReport]:
    """Return those with the worst objectives, in their order."""
    if len(reports) <= most:
        return reports
    ranks = [list(State).index(found.state) if (found := headline.worst(one)) else len(State) for one in reports]
    return [reports[i] for i in sorted(sorted(range(len(reports)), key=ranks.__getitem__)[:most])]


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, at the beginning of a line too."""
    text = _SPECIAL.sub(lambda found: f"\\{found[0]}", printable(text).strip())
    text = _REFERENCE.sub(lambda found: found[0] + _NO_LINK, text)
    return _OPENING.sub(lambda found: f"\\{found[0]}" if not found[0].isdigit() else f"{found[0]}\\", text)


def _namespace(report: LatencyReport, trace_url: str, characters: int) -> str:
    name = report.metadata.namespace
    if not report.results:
        return f"## {escaped(name)}\n\n{escaped(words.no_objectives(report))}"
    title = f"## {escaped(headline.headline(report, name))}"
    room = _Room(characters - sum(map(len, (title, *_HEAD))) - _SAID)
    as_of = [f"As of {escaped(max(result.updated for result in report.results))}."]
    rows = [row for row in map(_row, report.results) if room.takes([row])]
    slowest = [*_slowest(words.slowest(report.results)[:_SHOWN], trace_url)]
    slowest = slowest if room.takes(slowest) else []
    details = [lines for lines in map(_notes, report.results[: len(rows)]) if room.takes(lines)]
    said = [headline.not_shown(left)] if (left := len(report.results) - len(rows) + report.omitted) else []
    if more := len(rows) - len(details):
        said.append(f"What else there is to know of {units.number(more, 'objective')} found no room.")
    as_of = as_of if room.takes(as_of) else []
    parts = [[title], as_of, [*_HEAD, *rows], *details, slowest, said]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _row(result: Result) -> str:
    cells = result.state.words, words.name(result), words.sli(result), f"{result.goal} %", words.budget(result)
    return f"| {' | '.join(map(escaped, cells))} |"


def _notes(result: Result) -> list[str]:
    found = ((escaped(note.text), note.advice) for note in notes.told(result))
    title = f"### {escaped(f'{words.name(result)}: {result.state.words}')}"
    return [title, "", *(f"- **{text}**" if advice else f"- {text}" for text, advice in found)]


def _slowest(exchanges: Sequence[Exchange], trace_url: str) -> Iterable[str]:
    if not exchanges:
        return
    yield "| slowest | mostly, and why | stages | seen at | peer | UTC | trace id |"
    yield "| ---: | --- | --- | --- | --- | --- | --- |"
    for exchange in exchanges:
        result, slow = exchange.result, exchange.slow
        said = [words.largest(slow), *(words.explained(one, result, slow) for one in slow.evidence)]
        why = "<br>".join(map(escaped, filter(None, said)))
        for one in slow.waited_for:
            why += f"<br>{escaped(words.waited_for(one))}: {_trace(one.trace_id, trace_url)}"
        stages = ", ".join(f"{stage.stage} {words.short(stage.duration, 3)}" for stage in slow.stages)
        time = slow.time[5:19].replace("T", " ")
        texts = map(escaped, (stages, words.seen_at(exchange), slow.peer, time))
        yield f"| {words.short(slow.duration, 4)} | {why} | {' | '.join(texts)} | {_trace(slow.trace_id, trace_url)} |"


def _trace(trace_id: str, trace_url: str) -> str:
    text = f"`{trace_id}`" if re.fullmatch("[0-9a-f]+", trace_id) else escaped(trace_id)
    address = links.link(trace_url, trace_id).replace("(", "%28").replace(")", "%29")
    return f"[{text}]({address})" if address else text
