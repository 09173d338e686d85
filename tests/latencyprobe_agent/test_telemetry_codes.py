import numpy as np

from latencyprobe_agent.telemetry.codes import Codes


def test_equal_values_have_one_code() -> None:
    codes = Codes[str]()
    assert [codes.of(value) for value in ("a", "b", "a")] == [0, 1, 0]


def test_what_is_kept_keeps_its_value_under_a_new_code() -> None:
    codes = Codes[str]()
    of_rows = np.array([codes.of(value) for value in "abcd"], np.uint32)[[3, 1, 3]]
    kept = codes.keep(of_rows)
    assert [codes.values[code] for code in kept] == ["d", "b", "d"]
    assert len(codes.values) == 2
    assert codes.of("d") == kept[0]
