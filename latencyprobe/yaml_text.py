"""Documents as YAML for a person and for kubectl: expressions of several lines as blocks, keys in our order.

kubectl reads more as numbers and booleans than PyYAML does, `1e3`, `08` and `y` for example: such texts are quoted, or
a label of this value would be none.
"""

import contextlib
import math
import re

import yaml

_WIDTH = 1000  # no line of an expression is folded
# Source: https://github.com/kubernetes-sigs/yaml, goyaml.v2, resolve.go: yamlStyleFloat, strconv.ParseInt with base 0
# and the table of words.
_FIGURES = re.compile(r"[-+]?(0[bB][01]+|0[oO][0-7]+|0[xX][0-9a-fA-F]+|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST_BITS = 64  # of a whole number; a larger one is read as a real one, and what is too large for that is a text
_BOOLEAN = re.compile(r"[yYnN]")  # which PyYAML takes for texts


def number(text: str) -> int | float | None:
    """Return the number that kubectl reads where this text has no quotes, `None` where it reads none."""
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    figures = text if text.startswith("_") else text.replace("_", "")
    if not _FIGURES.fullmatch(figures):
        return None
    for base in (0, 8) if figures.lstrip("+-").startswith("0") else (0,):  # 010 is 8, and 08 is no octal number
        with contextlib.suppress(ValueError):  # also of thousands of digits
            if (whole := int(figures, base)).bit_length() <= _MOST_BITS:
                return whole
    with contextlib.suppress(ValueError):  # of what is hexadecimal, and too large
        if math.isfinite(real := float(figures)):
            return real
    return None


def dump(document: object) -> str:
    """Return one document."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    read_as_other = number(value) is not None or _FIGURES.fullmatch(value) or _BOOLEAN.fullmatch(value)
    style = "|" if "\n" in value else "'" if read_as_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)
