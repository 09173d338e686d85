"""The carrier of remote join: nothing waits, nothing is lost silently, one post at a time."""

import threading
from collections.abc import Iterator

import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Ask, RemoteJoinAnswer, RemoteJoinMessage, ServerHalf
from latencyprobe_agent.directory import remote_join
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from tests.support.waiting import wait_until

KEYS = [f"{i:032x}" for i in range(10_000)]


class Desk:
    """What is posted, and what is answered."""

    def __init__(self) -> None:
        self.posted: list[RemoteJoinMessage] = []
        self.refused: dict[str, str] = {}
        self.away = False
        self.open = threading.Event()
        self.open.set()

    def post(self, message: RemoteJoinMessage) -> RemoteJoinAnswer:
        self.open.wait(10)
        if self.away:
            raise DirectoryError("the directory is away")
        self.posted.append(message)
        return RemoteJoinAnswer(self.refused)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def post(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteJoinPost]:
    monkeypatch.setattr(remote_join, "_PACE_S", 0.01)
    made = RemoteJoinPost(desk.post)
    made.start()
    yield made
    desk.open.set()
    made.stop()


def half(key: str) -> ServerHalf:
    return ServerHalf(key, (1, 2, 3, 4))


def test_questions_travel_by_address_and_whether_they_are_spans(desk: Desk, post: RemoteJoinPost) -> None:
    questions = [("10.0.0.1", True, KEYS[0]), ("10.0.0.2", True, KEYS[1]), ("10.0.0.1", True, KEYS[2])]
    post.send([*questions, ("10.0.0.1", False, KEYS[3])], [half(KEYS[9])])
    wait_until(lambda: desk.posted)
    (said,) = desk.posted
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


def test_refused_keys_come_back_with_their_reasons(desk: Desk, post: RemoteJoinPost) -> None:
    desk.refused = {KEYS[0]: "no_agent"}
    post.send([("10.0.0.1", True, KEYS[0])], [])
    refused: dict[str, str] = {}
    wait_until(lambda: refused.update(post.take()[1]) or refused)
    assert refused == {KEYS[0]: "no_agent"}


def test_a_directory_that_is_away_refuses_questions_and_loses_halves_countedly(
    desk: Desk, post: RemoteJoinPost
) -> None:
    desk.away = True
    post.send([("10.0.0.1", True, KEYS[0])], [half(KEYS[1]), half(KEYS[2])])
    refused: dict[str, str] = {}
    wait_until(lambda: refused.update(post.take()[1]) or refused)
    assert refused == {KEYS[0]: "directory"}
    assert post.dropped["directory"] == 2
    desk.away = False
    post.send([("10.0.0.1", True, KEYS[3])], [])
    wait_until(lambda: desk.posted)


def test_queues_are_bounded_in_all_directions(desk: Desk, post: RemoteJoinPost) -> None:
    desk.open.clear()
    post.send([("10.0.0.1", True, "f" * 32)], [])  # keeps the thread busy
    wait_until(lambda: not post._questions)
    post.send([("10.0.0.1", True, key) for key in KEYS[:5000]], [half(key) for key in KEYS[:5000]])
    assert post.take()[1] == dict.fromkeys(KEYS[4096:5000], "busy")
    assert post.dropped["busy"] == 5000 - 4096
    for start in range(0, 6000, 1000):
        post.receive(RemoteJoinMessage((Ask(tuple(KEYS[start : start + 1000])),)))
    heard, _ = post.take()
    assert (len(heard), post.dropped["unread"]) == (5, 1000)
    desk.open.set()
    wait_until(lambda: sum(len(ask.keys) for one in desk.posted for ask in one.asks) == 4097)
    assert max(sum(len(ask.keys) for ask in one.asks) for one in desk.posted) <= remote_join.MAX_KEYS
    assert max(len(one.halves) for one in desk.posted) <= remote_join.MAX_HALVES
