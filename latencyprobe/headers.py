"""Headers as variables give them: `name=value,name=value`, percent-encoded, as OTEL_EXPORTER_OTLP_HEADERS."""

import re
from urllib.parse import unquote

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2 "Tokens"
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


def headers(text: str) -> dict[str, str]:
    """Return values by name. Raises ValueError; what a value holds is left out of it, for it may be a secret."""
    found = {}
    for entry in filter(str.strip, text.split(",")):
        name, equals, value = (unquote(part).strip() for part in entry.partition("="))
        if not equals or not _NAME.fullmatch(name):  # part of a value may be in it, as of `name: value`
            raise ValueError("a name is empty, can be no header's or has no value: give name=value,name=value")
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"the value of {name!r} has a line break, or a character beyond Latin-1: no header can have it; "
                "`base64 -w0` breaks no line"
            )
        found[name] = value
    return found
