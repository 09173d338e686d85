import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from latencyprobe_agent.telemetry.wire import head, heads, varints


@pytest.mark.parametrize("width", [4, 8])
@given(data=st.data())
def test_integers_of_one_length_are_read_as_they_were(data: st.DataObject, width: int) -> None:
    values = data.draw(st.lists(st.integers(0, 2 ** (7 * width) - 1)))
    tag = bytes([AnyValue.INT_VALUE_FIELD_NUMBER << 3])
    written = varints(np.array(values, np.uint64), width).tolist()
    assert {len(one) for one in written} <= {width}
    assert [AnyValue.FromString(tag + one).int_value for one in written] == values


@pytest.mark.parametrize("length", [0, 1, 127, 128, 20_000, 3_000_000])
def test_a_message_has_the_length_that_its_head_says(length: int) -> None:
    (of_column,) = heads(AnyValue.STRING_VALUE_FIELD_NUMBER, np.array([length])).tolist()
    for before in (head(AnyValue.STRING_VALUE_FIELD_NUMBER, length), of_column):
        assert AnyValue.FromString(before + b"x" * length).string_value == "x" * length
