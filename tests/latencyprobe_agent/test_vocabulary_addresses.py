from latencyprobe_agent.vocabulary.addresses import address


def test_addresses_read_as_people_write_them() -> None:
    assert address(b"\0" * 10 + b"\xff\xff" + bytes([10, 0, 0, 1])) == "10.0.0.1"
    assert address(b"\xfd" + b"\0" * 14 + b"\1") == "fd00::1"
