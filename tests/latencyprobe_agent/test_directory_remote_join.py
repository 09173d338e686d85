"""The carrier of remote join: nothing waits, nothing is lost silently, one post at a time."""

from collections.abc import Iterator

import msgspec
import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import NAME, Ask, RemoteJoinMessage, ServerHalf
from latencyprobe.wire import MAX_KEYS
from latencyprobe_agent.directory import remote_join
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_operator.directory.server import MAX_SMALL_BODY
from tests.support.waiting import wait_until

KEYS = [f"{i:032x}" for i in range(10_000)]


@pytest.fixture
def directory() -> FakeDirectory:
    return FakeDirectory()


@pytest.fixture
def post(directory: FakeDirectory, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteJoinPost]:
    """A carrier that nobody has started yet."""
    monkeypatch.setattr(remote_join, "_PACE_S", 0.01)
    made = RemoteJoinPost(directory.remote_join)
    yield made
    made.stop()


def half(key: str) -> ServerHalf:
    return ServerHalf(key, (1, 2, 3, 4))


def test_questions_travel_by_address_and_whether_they_are_spans(directory: FakeDirectory, post: RemoteJoinPost) -> None:
    post.start()
    questions = [("10.0.0.1", True, KEYS[0]), ("10.0.0.2", True, KEYS[1]), ("10.0.0.1", True, KEYS[2])]
    post.send([*questions, ("10.0.0.1", False, KEYS[3])], [half(KEYS[9])])
    wait_until(lambda: directory.messages)
    (said,) = directory.messages
    assert said.halves == (half(KEYS[9]),)
    assert said.asks == (
        Ask((KEYS[0], KEYS[2]), "10.0.0.1", spans=True),
        Ask((KEYS[1],), "10.0.0.2", spans=True),
        Ask((KEYS[3],), "10.0.0.1"),
    )


def test_what_the_stream_says_is_taken_once(post: RemoteJoinPost) -> None:
    said = RemoteJoinMessage((Ask((KEYS[0],)),), (half(KEYS[1]),))
    post.receive(said)
    assert post.take() == ([said], {})
    assert post.take() == ([], {})


def test_refused_keys_come_back_with_their_reasons(directory: FakeDirectory, post: RemoteJoinPost) -> None:
    directory.refused = {KEYS[0]: "no_agent"}
    post.start()
    post.send([("10.0.0.1", True, KEYS[0])], [])
    refused = wait_until(lambda: post.take()[1])
    assert refused == {KEYS[0]: "no_agent"}


def test_a_directory_that_is_away_refuses_questions_and_loses_halves_countedly(
    directory: FakeDirectory, post: RemoteJoinPost
) -> None:
    directory.error = DirectoryError("the directory is away")
    post.start()
    post.send([("10.0.0.1", True, KEYS[0])], [half(KEYS[1]), half(KEYS[2])])
    refused = wait_until(lambda: post.take()[1])
    assert refused == {KEYS[0]: "directory"}
    assert post.dropped["directory"] == 2
    directory.error = None
    post.send([("10.0.0.1", True, KEYS[3])], [])
    wait_until(lambda: directory.messages)


@pytest.mark.parametrize("letter", ["a", "漢", "😀", "\x01"])
def test_no_post_is_larger_than_the_directory_takes(
    directory: FakeDirectory, post: RemoteJoinPost, letter: str
) -> None:
    longest, address = letter * NAME, "2001:db8:1234:5678:9abc:def0:1234:5678"
    halves = [ServerHalf(key, (1 << 50,) * 4, service=longest, namespace=longest, pod="p" * NAME) for key in KEYS[:150]]
    post.send([(f"{address[:-4]}{i:04}", True, key) for i, key in enumerate(KEYS[:1000])], halves)
    post.start()
    wait_until(lambda: sum(len(one.halves) for one in directory.messages) == len(halves))
    assert halves == [half for one in directory.messages for half in one.halves]
    assert max(len(msgspec.json.encode(one)) for one in directory.messages) < MAX_SMALL_BODY


def test_queues_are_bounded_in_all_directions(directory: FakeDirectory, post: RemoteJoinPost) -> None:
    post.send([("10.0.0.1", True, key) for key in KEYS[:5000]], [half(key) for key in KEYS[:5000]])
    assert post.take()[1] == dict.fromkeys(KEYS[4096:5000], "busy")
    assert post.dropped["busy"] == 5000 - 4096
    for start in range(0, 6000, 1000):
        post.receive(RemoteJoinMessage((Ask(tuple(KEYS[start : start + 1000])),)))
    heard, _ = post.take()
    assert (len(heard), post.dropped["unread"]) == (5, 1000)
    post.start()
    wait_until(lambda: sum(len(ask.keys) for one in directory.messages for ask in one.asks) == 4096)
    assert max(sum(len(ask.keys) for ask in one.asks) for one in directory.messages) <= MAX_KEYS
    assert max(len(one.halves) for one in directory.messages) <= remote_join.MAX_HALVES
