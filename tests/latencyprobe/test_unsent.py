"""Bytes that waited to be sent, in words."""

import pytest

from latencyprobe import unsent

KERNEL = "held by the server's kernel for 41 ms"


def test_a_reason_is_worded_with_who_held_what_it_waited_for_and_what_helps() -> None:
    what = unsent.what("server", "nagle", 0)
    assert "server nagle" == what
    expected = f"{KERNEL}: Nagle, until the client's ACK: set TCP_NODELAY or write once"
    assert expected == unsent.sentence(what, "41 ms")


@pytest.mark.parametrize("holder", ["client", "server"])
@pytest.mark.parametrize("reason", unsent.REASONS)
def test_whose_window_and_whose_ack_is_said_of_the_other_end(holder: str, reason: unsent.Reason) -> None:
    said = unsent.sentence(unsent.what(holder, reason.name, 0), "1 s")
    peer = "client" if holder == "server" else "server"
    assert said.startswith(f"held by the {holder}'s kernel for 1 s: ")
    assert ("{peer}" in reason.held_by) == (f"the {peer}'s" in said)
    assert "{" not in said


@pytest.mark.parametrize(("bound", "said"), [(0, "for 41 ms"), (1, "for at most 41 ms"), (2, "for at least 41 ms")])
def test_a_bound_is_called_a_bound(bound: int, said: str) -> None:
    assert f"held by the client's kernel {said}: " in unsent.sentence(unsent.what("client", "cwnd", bound), "41 ms")


@pytest.mark.parametrize("what", ["", "server", "server tomorrow", "[/x] nagle", "server nagle about"])
def test_words_of_another_version_come_back_as_they_are(what: str) -> None:
    assert f"unsent {what}, 41 ms" == unsent.sentence(what, "41 ms")


def test_of_several_no_time_is_said() -> None:
    assert unsent.sentence("server nagle at most").startswith("held by the server's kernel: Nagle, until")
    assert "unsent server tomorrow" == unsent.sentence("server tomorrow")
