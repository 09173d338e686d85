"""A flame graph as one SVG, for documents: it needs nothing from elsewhere and no script; hovering tells of a frame."""

from collections.abc import Iterator
from textwrap import wrap
from xml.sax.saxutils import escape

from latencyprobe.report import units
from latencyprobe_agent.flame import palette
from latencyprobe_agent.flame.telling import EMPTY, Told, share
from latencyprobe_agent.flame.tree import BORDER, Node

_WIDTH, _MARGIN, _ROW, _TOP = 1200, 16, 18, 72
_LETTER = 6.63  # width at 11 px
_LEAST = 0.3  # pixels: what is narrower cannot be seen
_LINE_LETTERS = 150
_STYLE = (
    "text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".title{font:600 16px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
    ".said{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}.rule{stroke-width:.6}"
)


def render(nodes: list[Node], words: Told) -> str:
    """Return the picture. Frames narrower than a third of a pixel are left out and counted in its second line."""
    total_ns = sum(node.ns for node in nodes if not node.depth)
    scale = (_WIDTH - 2 * _MARGIN) / total_ns if total_ns else 0.0
    drawn = [node for node in nodes if node.ns * scale >= _LEAST]
    rows = max((node.depth for node in drawn), default=0) + 1
    said = [f"{len(nodes) - len(drawn):,} frames too narrow to draw"] if len(nodes) > len(drawn) else []
    said += [f"missing: {words.missing}"] if words.missing else []
    height = _TOP + (rows * _ROW if nodes else 90) + _MARGIN
    boxes = (part for node in drawn for part in _box(node, scale, total_ns))
    return "".join((*_head(words, " · ".join(said), height), *(boxes if nodes else _empty()), "</svg>\n"))


def _head(words: Told, said: str, height: int) -> Iterator[str]:
    title = escape(words.title)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    yield f' role="img" aria-label="{escape(words.title, {chr(34): "&quot;"})}"><title>{title}</title><style>{_STYLE}'
    yield from palette.rules(palette.LIGHT, palette.PAGE_LIGHT)
    yield "@media (prefers-color-scheme:dark){"
    yield from palette.rules(palette.DARK, palette.PAGE_DARK)
    yield f'}}</style><rect class="page" width="{_WIDTH}" height="{height}"/>'
    yield f'<text class="title text" x="{_MARGIN}" y="28">{title}</text>'
    yield f'<text class="said muted" x="{_MARGIN}" y="46">{escape(_fit(said, _LINE_LETTERS))}</text>'
    x = _WIDTH - _MARGIN - 74 * len(palette.LEGEND)
    for kind, called in palette.LEGEND.items():
        yield f'<rect class="k{kind}0" x="{x}" y="20" width="10" height="10" rx="2"/>'
        yield f'<text class="said muted" x="{x + 14}" y="29">{called}</text>'
        x += 74


def _empty() -> Iterator[str]:
    for i, line in enumerate(wrap(EMPTY, _LINE_LETTERS)):
        yield f'<text class="said text" x="{_MARGIN}" y="{_TOP + 16 + 18 * i}">{escape(line)}</text>'


def _box(node: Node, scale: float, total_ns: int) -> Iterator[str]:
    x, y, width = _MARGIN + node.start_ns * scale, _TOP + node.depth * _ROW, node.ns * scale
    name = "system call" if node.kind == BORDER else node.name
    said = f"{name}\n{units.duration(node.ns)}, {share(node.ns, total_ns)}"
    yield f"<g><title>{escape(said)}</title>"
    place = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW}" rx="2"'
    yield f'<rect class="rule {palette.css_class(node)}" {place}/>'
    if shown := _fit(name, int((width - 6) / _LETTER)):
        yield f'<text class="text" x="{x + 4:.2f}" y="{y + 13}">{escape(shown)}</text>'
    yield "</g>"


def _fit(text: str, letters: int) -> str:
    if len(text) <= letters:
        return text
    return f"{text[: letters - 1]}…" if letters >= 3 else ""
