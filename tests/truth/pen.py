"""What scripts are written with: steps, messages, pauses of a known kind. scripts.py, acts.py."""

import random

from latencyprobe_agent.vocabulary.records import Role
from tests.truth.scripts import IDLE_NS, MS, PAUSE_NS, Do, Limit, Request, Script, Step

CLIENT, SERVER = Role.CLIENT, Role.SERVER
SIZES = (1, 2, 7, 100, 1448, 5000, 20_000)  # bytes
SIZES_IN_TLS = (24, 24, 24, 24, 85, 27, 1448)  # of alerts, most of them
SOON_MS, LATE_MS = (0, 60), (150, 190)  # within, and after 100 ms, behind which a FIN is no goodbye any more


class Pen:
    """Writes one script. `sizes`: of the pieces of its messages, in bytes.

    `_needs_quiet`: only after silence does the client's next message begin a request. `_unanswered`: offset of what the
    client has said last, if it expects no answer.
    """

    def __init__(self, seed: int, sizes: tuple[int, ...] = SIZES) -> None:
        self.script = Script(seed)
        self._sizes = sizes
        self._dice = random.Random(seed)
        self._a = self._b = 0  # bytes so far
        self._needs_quiet = False
        self._unanswered: int | None = None

    def _do(self, do: Do, end: Role) -> None:
        self.script.steps.append(Step(do, end))

    def _wait(self, least_ns: float, most_ns: float) -> None:
        self.script.steps.append(Step(Do.WAIT, ns=int(self._dice.uniform(least_ns, most_ns))))

    def _short(self) -> None:
        if self._dice.random() < 0.3:
            self._wait(0, PAUSE_NS / 4)

    def _long(self) -> None:
        self._wait(2 * PAUSE_NS, 3 * PAUSE_NS)

    def _soon(self) -> None:
        self._wait(SOON_MS[0] * MS, SOON_MS[1] * MS)

    def _late(self) -> None:
        self._wait(LATE_MS[0] * MS, LATE_MS[1] * MS)

    def _some(self) -> None:
        """Wait for any time."""
        self._dice.choice((self._short, self._short, self._short, self._long, self._late))()

    def _quiet(self) -> None:
        if self._needs_quiet:
            self._dice.choice((self._long, self._long, self._long, self._idle))()
        else:
            self._dice.choice((self._short,) * 8 + (self._long, self._long, self._idle))()
        self._needs_quiet = False

    def _idle(self) -> None:
        if self._dice.random() < 0.3:
            self._wait(1.5 * IDLE_NS, 2 * IDLE_NS)
        else:
            self._long()

    def _send(self, end: Role, *, read: bool = True) -> tuple[int, int]:
        """Send a piece: its bytes."""
        size = self._dice.choice(self._sizes)
        self.script.steps.append(Step(Do.SEND, end, size, read=read))
        if end is CLIENT:
            self._a += size
            return self._a - size, self._a
        self._b += size
        return self._b - size, self._b

    def _message(self, end: Role) -> None:
        """Send in one to three pieces without silence, and read each at once or all of them late."""
        at_once = self._dice.random() < 0.8 or self.script.delayed_ack
        for piece in range(self._dice.choice((1, 1, 1, 2, 3))):
            if piece:
                self._short()
            self._send(end, read=at_once)
        if not at_once:
            self._short()
            self._do(Do.READ, SERVER if end is CLIENT else CLIENT)

    def _begin(self) -> Request:
        request = Request(self._a)
        self._unanswered = None
        self.script.requests.append(request)
        return request

    def _asked(self, request: Request) -> None:
        request.a_to = self._a
        request.b_from = request.b_to = self._b

    def _take_for_an_answer(self, why: str) -> bool:
        """What comes now looks like the answer to what the client said last, which expects none: true if there is some.

        No end can know it.
        """
        if self._unanswered is None:
            return False
        self.script.limits.append(Limit(why, self._unanswered, self._a))
        self._unanswered = None
        return True
