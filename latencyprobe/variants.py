"""What an agent's status says of its programs (`variants`), where the operator looks for it."""

HTTP2 = "http2"
USER_STACKS = "waits.user_stacks"
LACKING = "unsupported"  # the variant of what cannot be had on a node


def of_pressure(kind: str) -> str:
    """Return the name of one kind of pressure."""
    return f"pressure.{kind}"
