"""The report, and one exchange explained, as an HTML page that needs nothing else: for a browser, a mail, a printer. It
has no script.

Receives reports or an Explanation and returns text. report.html.j2 and explanation.html.j2 are the pages, page.html.j2
what they share, objective.html.j2 one objective, parts.html.j2 its small pieces: jinja2 escapes all that they print,
because names come from others. headline.py, notes.py, words.py, evidence.py and explanation.py have the sentences,
drawing.py the pictures' geometry.
"""

import re
from collections.abc import Sequence

import jinja2

from latencyprobe import exclusions
from latencyprobe.causes import told
from latencyprobe.report import drawing, evidence, headline, links, notes, turns, words
from latencyprobe.report.explanation import Explanation
from latencyprobe.report.model import Coverage, LatencyReport
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable

_PERCENT = re.compile(r"(?<=\d) %")


def render(
    reports: Sequence[LatencyReport], trace_url: str = "", said: Sequence[str] = (), *, past: bool = False
) -> str:
    """Return the page of these namespaces. `trace_url`: an address that links.py accepts; empty for no links. `said`:
    sentences about all of it. `past`: it is as of a moment that is over."""
    page = _environment(trace_url).get_template("report.html.j2")
    stages = drawing.drawn([one for found in reports for one in found.results])
    return page.render(reports=reports, said=said, stages=stages, moment="then" if past else "now")


def explained(found: Explanation, trace_url: str = "") -> str:
    """Return the page of one exchange. `trace_url`: as of `render`."""
    page = _environment(trace_url).get_template("explanation.html.j2")
    stages = drawing.legend({row.mark.label for half in found.halves for row in half.rows})
    return page.render(found=found, stages=stages)


def _environment(trace_url: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("latencyprobe", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_readable,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": words.short, "cause": told, "utc": _utc, "excluded": _excluded}
    environment.globals |= {
        "words": words,
        "notes": notes,
        "headline": headline,
        "drawing": drawing,
        "signals": evidence,
        "turns": turns,
        "states": tuple(State),
        "link": lambda trace_id: links.link(trace_url, trace_id),
    }
    return environment


def _readable(value: object) -> object:
    """Replace what would hide text or turn it around, and the space at which a line would part a figure from its `%`.
    Markup is a macro's, whose text has come through here."""
    return _PERCENT.sub("\u00a0%", printable(value)) if type(value) is str else value


def _utc(moment: str) -> str:
    return moment.replace("T", " ").replace("Z", " UTC")


def _excluded(coverage: Coverage) -> list[tuple[str, str, int]]:
    """Return word, meaning and turns of each reason for which turns count as no RPC."""
    known = exclusions.BY_NAME
    return [
        (known[one.reason].word, known[one.reason].meaning, one.turns)
        if one.reason in known
        else (one.reason, "", one.turns)
        for one in coverage.exclusions
    ]
