"""Draw a trace as Jaeger's query API answers it, on one axis as Jaeger's page does, as an SVG.

`curl -s http://localhost:16686/api/traces/ID | .venv/bin/python scripts/trace_picture.py >docs/trace.svg`
"""

import json
import sys
from typing import Any

import jinja2

_WIDTH, _ROW, _LABELS = 1000, 24, 330
_COLOURS = {"client": "#7b61c9", "server": "#2f7fb8", "internal": "#e0a030"}
_PAGE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ row * (rows | length + 2) }}" \
font-family="system-ui, sans-serif" font-size="13">
<title>{{ title }}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="12" y="{{ row * 0.75 }}" font-weight="bold" fill="#222222">{{ title }}</text>
{%- for tick in ticks %}
<line x1="{{ tick.x }}" x2="{{ tick.x }}" y1="{{ row }}" y2="100%" stroke="#dddddd"/>
<text x="{{ tick.x + 3 }}" y="{{ row * 1.75 }}" fill="#777777" font-size="11">{{ tick.text }}</text>
{%- endfor %}
{%- for one in rows %}
{%- set y = row * (loop.index + 1) %}
<text x="{{ 12 + 16 * one.depth }}" y="{{ y + row * 0.68 }}" fill="#222222">{{ one.label }}</text>
<rect x="{{ one.x }}" y="{{ y + 4 }}" width="{{ one.width }}" height="{{ row - 8 }}" rx="2" fill="{{ one.colour }}"/>
<text x="{{ one.text_x }}" y="{{ y + row * 0.68 }}" fill="#555555" font-size="11" text-anchor="{{ one.anchor }}">\
{{ one.duration }}</text>
{%- endfor %}
</svg>
"""


def main() -> None:
    """Read the answer from standard input and write the picture."""
    (trace,) = json.load(sys.stdin)["data"]
    spans = trace["spans"]
    begin_us = min(span["startTime"] for span in spans)
    whole_us = max(span["startTime"] + span["duration"] for span in spans) - begin_us or 1
    axis = _WIDTH - _LABELS - 12

    def at(us: float) -> float:
        return round(_LABELS + axis * us / whole_us, 1)

    rows = [_row(span, depth, trace, at, begin_us) for span, depth in _tree(spans)]
    ticks = [{"x": at(whole_us * i / 4), "text": _told(whole_us * i / 4)} for i in range(4)]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    title = f"trace {spans[0]['traceID']}, {_told(whole_us)}"
    page = environment.from_string(_PAGE)
    sys.stdout.write(page.render(width=_WIDTH, row=_ROW, rows=rows, ticks=ticks, title=title))


def _tree(spans: list[Any]) -> list[tuple[Any, int]]:
    """Return the spans below their parents, in order of time, with their depth."""
    parent = {
        span["spanID"]: next((r["spanID"] for r in span["references"] if r["refType"] == "CHILD_OF"), "")
        for span in spans
    }

    def below(of: str, depth: int) -> list[tuple[Any, int]]:
        mine = [span for span in spans if parent[span["spanID"]] == of]
        mine.sort(key=lambda span: (span["startTime"], span["duration"]))
        return [one for span in mine for one in ((span, depth), *below(span["spanID"], depth + 1))]

    here = {span["spanID"] for span in spans}
    parent = {span: of if of in here else "" for span, of in parent.items()}
    return below("", 0)


def _row(span: Any, depth: int, trace: Any, at: Any, begin_us: int) -> dict[str, Any]:
    tags = {tag["key"]: tag["value"] for tag in span["tags"]}
    start_us = span["startTime"] - begin_us
    x, end = at(start_us), at(start_us + span["duration"])
    kind = str(tags.get("span.kind", "internal"))
    service = trace["processes"][span["processID"]]["serviceName"]
    outside = end > _WIDTH - 80
    return {
        "label": span["operationName"] if kind == "internal" else f"{service}: {span['operationName']} ({kind})",
        "depth": depth,
        "x": x,
        "width": max(end - x, 1.5),
        "colour": _COLOURS.get(kind, _COLOURS["internal"]),
        "text_x": x - 4 if outside else end + 4,
        "anchor": "end" if outside else "start",
        "duration": _told(span["duration"]),
    }


def _told(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us >= 1000 else f"{us:.0f} µs"


main()
