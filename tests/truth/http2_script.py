"""Random scripts of calls over one connection of HTTP/2, and what must be told of each."""

import os
from dataclasses import dataclass
from random import Random

from tests.truth.http2 import ASK, Connection, Message, Type, frame, message, noise

SEED = os.environ.get("SEED", "1")


@dataclass
class Call:
    """One stream. `reset`: who gives it up, and after how many frames of the answer; `early`: the answer may begin
    before the request has ended."""

    stream: int
    request: Message
    answer: Message
    reset: str = ""
    early: bool = False
    reset_at: tuple[int, int] = (-1, -1)

    @property
    def is_over(self) -> bool:
        return self.reset_at[0] >= 0 or (self.request.complete and self.answer.complete)


class Script:
    """Plays `count` calls, at most `at_once` open. `cut`: the largest piece that a call may move; 0: all that there is,
    so that calls hold whole frames."""

    def __init__(self, connection: Connection, seed: object, *, at_once: int = 20, cut: int = 20_000) -> None:
        self.connection = connection
        self.dice = Random(f"{seed}")
        self.calls: list[Call] = []
        self._at_once, self._pieces = at_once, (1, 9, 100, cut) if cut else (1 << 20,)
        self._next = 1
        self._open: list[Call] = []

    def play(self, count: int) -> None:
        """Play so many calls more, to their ends."""
        to_begin = count
        while to_begin or self._open:
            if to_begin and len(self._open) < self._at_once and self.dice.random() < 0.5:
                self._begin()
                to_begin -= 1
            self._speak()
            self._move()
        self.connection.settle(self.dice)

    def _begin(self) -> None:
        dice, stream = self.dice, self._next
        self._next += 2
        call = Call(stream, message(stream, dice), message(stream, dice, interim=dice.random() < 0.1))
        call.early = dice.random() < 0.05
        call.reset = dice.choice(("client", "server")) if dice.random() < 0.1 else ""
        call.request.put_next(self.connection.asks)
        self.calls.append(call)
        self._open.append(call)

    def _speak(self) -> None:
        dice, (asks, answers) = self.dice, self.connection.ways
        ids = [call.stream for call in self._open]
        if dice.random() < 0.1:
            dice.choice((asks, answers)).put(noise(dice, ids))
        if not self._open:
            return
        call = dice.choice(self._open)
        if call.reset and dice.random() < 0.2:
            way = asks if call.reset == "client" else answers
            # a server knows of no stream whose HEADERS it has not read
            if call.reset == "client" or asks.read.moved_by(call.request.end):
                call.reset_at = way.put(frame(Type.RST_STREAM, 0, call.stream, bytes(4)))
        elif not call.request.complete and dice.random() < 0.7:
            call.request.put_next(asks)
        elif not call.answer.complete and self._may_answer(call):
            call.answer.put_next(answers)
        if call.is_over:
            self._open.remove(call)

    def _may_answer(self, call: Call) -> bool:
        read = self.connection.asks.read.moved_by(call.request.end)
        return read and (call.early or call.request.complete)

    def _move(self) -> None:
        for way in self.connection.ways:
            if self.dice.random() < 0.5:
                way.send(self.dice.choice(self._pieces), self.dice)
            if self.dice.random() < 0.5:
                way.receive(self.dice.choice(self._pieces), self.dice)


def ask_only(connection: Connection, count: int, first: int = 1) -> None:
    """Begin so many calls, whose requests are headers alone, and leave them open."""
    dice = Random(SEED)
    for stream in range(first, first + 2 * count, 2):
        connection.asks.put(frame(Type.HEADERS, ASK, stream, bytes(10)))
    connection.settle(dice)
