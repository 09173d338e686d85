"""Attributes as OTLP's messages."""

from collections.abc import Mapping, MutableSequence

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue


def fill(
    into: MutableSequence[KeyValue], attributes: Mapping[str, AttributeValue] | Mapping[Attribute, AttributeValue]
) -> None:
    """Append attributes to a message."""
    into.extend(KeyValue(key=key, value=any_value(value)) for key, value in attributes.items())


def any_value(value: AttributeValue) -> AnyValue:
    """Return a Python value as OTLP's."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(double_value=value) if isinstance(value, float) else AnyValue(string_value=value)
