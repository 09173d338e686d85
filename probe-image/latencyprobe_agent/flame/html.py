"""A flame graph as one HTML page: zoom, search, keyboard. It fetches nothing; page.html is its text."""

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from latencyprobe_agent.flame import palette
from latencyprobe_agent.flame.telling import EMPTY, Told
from latencyprobe_agent.flame.tree import Node


def render(nodes: list[Node], words: Told) -> str:
    """Return the page."""
    page = files(__package__).joinpath("page.html").read_text()
    for mark, value in {
        "LIGHT": _declared(palette.variables(palette.LIGHT, palette.PAGE_LIGHT)),
        "DARK": _declared(palette.variables(palette.DARK, palette.PAGE_DARK)),
        "LEGEND": "".join(
            f'<li><i style="background:var(--k{kind}0)"></i>{called}</li>' for kind, called in palette.LEGEND.items()
        ),
        "MISSING": f"Missing: {escape(words.missing)}" if words.missing else "",
        "EMPTY": escape(EMPTY),
        "STATE": "full" if nodes else "empty",
        "TITLE": escape(words.title),
        "DATA": _data(nodes),
    }.items():
        page = page.replace(f"<!--{mark}-->", value).replace(f"/*{mark}*/", value)
    return page


def _declared(variables: Iterable[str]) -> str:
    return "".join(f"{variable};" for variable in variables)


def _data(nodes: list[Node]) -> str:
    """Return the nodes by columns, as JSON that no browser takes for an end of its element."""
    names: dict[str, int] = {}
    columns: dict[str, Any] = {
        "name": [names.setdefault(node.name, len(names)) for node in nodes],
        "kind": [node.kind for node in nodes],
        "depth": [node.depth for node in nodes],
        "start": [node.start_ns for node in nodes],
        "ns": [node.ns for node in nodes],
        "end": [node.end for node in nodes],
        "names": list(names),
        "shade": [palette.shade(name) for name in names],
    }
    return msgspec.json.encode(columns).decode().replace("<", "\\u003c")
