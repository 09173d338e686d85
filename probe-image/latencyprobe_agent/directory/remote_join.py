"""Carries the remote join between measuring and the directory, so that neither waits for the other.

`send()` queues questions and found halves; `take()` returns what has come, by the plan stream (`receive()`) or as an
answer to what was posted. One thread posts, at a bounded pace. Queues are bounded; a question that does not fit, or
that the directory does not take, comes back as refused.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from latencyprobe.plan import Ask, RemoteJoinAnswer, RemoteJoinMessage, ServerHalf
from latencyprobe.wire import MAX_KEYS
from latencyprobe_agent.directory.attempts import Attempts
from latencyprobe_agent.guard import Guard

_PACE_S = 0.2  # the directory takes 20 requests a second from a node, of which identities may be 10
MAX_HALVES = 150  # of one post
_HALVES_BYTES = 128 << 10  # of one post, beside 112 kB of questions: the directory takes 256 KiB
_CAPACITY = 4096  # keys, or halves, that wait in either direction: about 2 MB at the longest names

Question = tuple[str, bool, str]  # address, whether its half became a span, key


class RemoteJoinPost:
    """`post` is Directory.remote_join. `dropped`: halves that nobody got, by reason."""

    def __init__(self, post: Callable[[RemoteJoinMessage], RemoteJoinAnswer], guard: Guard | None = None) -> None:
        self.dropped: Counter[str] = Counter()
        self._post = post
        self._posts = Attempts("remote_join_post", "slow exchanges keep the stages of their own half meanwhile", guard)
        self._questions: list[Question] = []
        self._halves: list[ServerHalf] = []
        self._received: list[RemoteJoinMessage] = []
        self._refused: dict[str, str] = {}
        self._lock = threading.Condition()
        self._stopped = False

    def start(self) -> None:
        """Start posting."""
        threading.Thread(target=self._run, name="remote join", daemon=True).start()

    def stop(self) -> None:
        """Post no more."""
        with self._lock:
            self._stopped = True
            self._lock.notify()

    def send(self, questions: Iterable[Question], halves: Iterable[ServerHalf]) -> None:
        """Queue questions of this node and halves for others."""
        with self._lock:
            self._questions += questions
            self._halves += halves
            for _, _, key in self._questions[_CAPACITY:]:
                self._refused[key] = "busy"
            self.dropped["busy"] += len(self._halves[_CAPACITY:])
            del self._questions[_CAPACITY:], self._halves[_CAPACITY:]
            self._lock.notify()

    def receive(self, message: RemoteJoinMessage) -> None:
        """Queue a message of the plan stream. Safe in another thread."""
        with self._lock:
            waiting = sum(len(ask.keys) for one in self._received for ask in one.asks)
            if waiting + sum(len(one.halves) for one in self._received) < _CAPACITY:
                self._received.append(message)
            else:
                self.dropped["unread"] += sum(len(ask.keys) for ask in message.asks) + len(message.halves)

    def take(self) -> tuple[list[RemoteJoinMessage], dict[str, str]]:
        """Return what has come since the last call, and the refused keys with their reasons."""
        with self._lock:
            received, self._received = self._received, []
            refused, self._refused = self._refused, {}
        return received, refused

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._questions or self._halves or self._stopped)
                if self._stopped:
                    return
                questions, self._questions = self._questions[:MAX_KEYS], self._questions[MAX_KEYS:]
                some = _fitting(self._halves)
                halves, self._halves = self._halves[:some], self._halves[some:]
            answer = self._posts.run(partial(self._post, RemoteJoinMessage(_asks(questions), tuple(halves))))
            if answer is None:
                answer = RemoteJoinAnswer(dict.fromkeys((key for _, _, key in questions), "directory"))
                self.dropped["directory"] += len(halves)
            with self._lock:
                self._refused |= answer.refused
                self._lock.wait_for(lambda: self._stopped, timeout=_PACE_S)


def _fitting(halves: Sequence[ServerHalf]) -> int:
    """Return how many of these, from the first on, one post has room for."""
    size = 0
    for count, half in enumerate(halves[:MAX_HALVES]):
        size += len(msgspec.json.encode(half)) + 1
        if size > _HALVES_BYTES:
            return count
    return MAX_HALVES


def _asks(questions: Iterable[Question]) -> tuple[Ask, ...]:
    grouped: dict[tuple[str, bool], list[str]] = {}
    for address, spans, key in questions:
        grouped.setdefault((address, spans), []).append(key)
    return tuple(Ask(tuple(keys), address, spans) for (address, spans), keys in grouped.items())
