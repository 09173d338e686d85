"""Colours of frames by what they are, light and dark: three shades each, so that neighbours can be told apart."""

from collections.abc import Iterator
from zlib import crc32

from latencyprobe_agent.flame.tree import BORDER, COMM, CPU, KERNEL_FRAME, UNNAMED, USER, Node

SHADES = 3
LIGHT = {
    COMM: ("#ccd3db", "#d3d9e0", "#dae0e6"),
    USER: ("#f3bd6a", "#f6c880", "#f2b256"),
    BORDER: ("#e9ebee",) * SHADES,
    KERNEL_FRAME: ("#93bdee", "#a5c9f2", "#84b2e8"),
    CPU: ("#9ed3a0", "#aedbb0", "#90c993"),
    UNNAMED: ("#ddd5cb", "#e3dcd3", "#d6cdc2"),
}
DARK = {
    COMM: ("#404852", "#47505b", "#39414a"),
    USER: ("#7d5a1d", "#896423", "#715119"),
    BORDER: ("#24292f",) * SHADES,
    KERNEL_FRAME: ("#295a8f", "#30659e", "#244f80"),
    CPU: ("#2f6b3c", "#377845", "#295e34"),
    UNNAMED: ("#4f473d", "#574f45", "#474037"),
}
PAGE_LIGHT = {"page": "#fbfbfa", "text": "#1c2128", "muted": "#5d6670", "line": "#d5d9de", "mark": "#c4178b"}
PAGE_DARK = {"page": "#14171b", "text": "#e8eaed", "muted": "#9aa4ae", "line": "#353c44", "mark": "#ff7ac6"}
LEGEND = {COMM: "thread", USER: "program", KERNEL_FRAME: "kernel", CPU: "running", UNNAMED: "no name"}


def shade(name: str) -> int:
    """Return which of its kind's shades a frame has: the same wherever it is."""
    return crc32(name.encode()) % SHADES


def css_class(node: Node) -> str:
    """Return the class of a frame's box."""
    return f"k{node.kind}{shade(node.name)}"


def variables(frames: dict[int, tuple[str, ...]], page: dict[str, str]) -> Iterator[str]:
    """Yield declarations of CSS variables: `--k10: #f3bd6a`, `--page: #fbfbfa`."""
    yield from (f"--k{kind}{i}: {colour}" for kind, shades in frames.items() for i, colour in enumerate(shades))
    yield from (f"--{name}: {colour}" for name, colour in page.items())


def rules(frames: dict[int, tuple[str, ...]], page: dict[str, str]) -> Iterator[str]:
    """Yield CSS rules for a picture, without variables: not every viewer knows them."""
    yield from (f".k{kind}{i}{{fill:{colour}}}" for kind, shades in frames.items() for i, colour in enumerate(shades))
    yield f".page{{fill:{page['page']}}}.text{{fill:{page['text']}}}.muted{{fill:{page['muted']}}}"
    yield f".rule{{stroke:{page['page']}}}"
