"""Documents as YAML for a person and for kubectl: expressions of several lines as blocks, keys in our order.

kubectl reads more as numbers and booleans than PyYAML does, `1e3`, `08` and `y` for example: such texts are quoted, or
a label of this value would be none.
"""

import re

import yaml

_WIDTH = 1000  # no line of an expression is folded
# Source: https://github.com/kubernetes-sigs/yaml, goyaml.v2, resolve.go: yamlStyleFloat and the table of booleans.
_NO_TEXT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[yYnN]|0o[0-7_]+")


def dump(document: object) -> str:
    """Return one document."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _NO_TEXT.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)
