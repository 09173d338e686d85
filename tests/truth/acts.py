"""What a connection is made of: acts of scripts (scripts.py) after which it goes on."""

from tests.truth.pen import CLIENT, SERVER, Pen
from tests.truth.scripts import Do


class Acts(Pen):
    """Acts; what each is known to be is in the script's requests."""

    def call(self) -> None:
        self._quiet()
        request = self._begin()
        self._message(CLIENT)
        self._asked(request)
        self._some()
        self._message(SERVER)
        request.b_to = self._b

    def resumed(self) -> None:
        """Pause within the request."""
        self._quiet()
        request = self._begin()
        self._message(CLIENT)
        for _ in range(self._dice.choice((1, 1, 2))):
            self._long()
            request.parts.append(self._a)
            self._message(CLIENT)
        self._asked(request)
        self._some()
        self._message(SERVER)
        request.b_to = self._b

    def resumed_unread(self) -> None:
        """Pause within the request, which a busy server reads late."""
        self._quiet()
        request = self._begin()
        self._send(CLIENT, read=False)
        self._long()
        request.parts.append(self._a)
        self._send(CLIENT, read=False)
        self._do(Do.READ, SERVER)
        self._asked(request)
        self._message(SERVER)
        request.b_to = self._b

    def streaming(self) -> None:
        self._quiet()
        request = self._begin()
        self._message(CLIENT)
        self._asked(request)
        self._message(SERVER)
        for _ in range(self._dice.choice((1, 1, 2))):
            self._long()
            self._message(SERVER)
        request.b_to = self._b
        self._needs_quiet = True

    def push(self) -> bool:
        """Push. True: it looks like an answer."""
        self._long()
        self._needs_quiet = True
        taken = self._take_for_an_answer("a message that expects no answer, and the next push")
        self._message(SERVER)
        return taken

    def replied(self) -> None:
        """Push, and be acknowledged at once."""
        taken = self.push()
        self._short()
        first = self._a
        self._message(CLIENT)
        if taken or not first:  # then, or after a greeting, it is no reply, but looks like a request
            self._unanswered = first

    def hasty(self) -> None:
        """Push; a request follows at once, as if it were the reply: it is none of our events."""
        self.push()
        self._needs_quiet = False
        self._short()
        request = self._begin()
        self._send(CLIENT)
        self._asked(request)
        self._short()
        self._send(SERVER)
        request.b_to = self._b
        self._needs_quiet = True

    def late_reply(self) -> None:
        self.push()
        self._long()
        self._unanswered = self._a
        self._message(CLIENT)

    def oneway(self) -> None:
        for _ in range(self._dice.choice((1, 1, 2))):
            self._quiet()
            self._unanswered = self._a
            self._message(CLIENT)
            self._needs_quiet = True

    def upload(self) -> None:
        """Answer before all of the request has come."""
        self._quiet()
        request = self._begin()
        self._send(CLIENT)
        request.early = True
        request.b_from = self._b
        self._send(SERVER, read=False)
        pause = self._dice.choice((self._short, self._short, self._long))
        for _ in range(self._dice.choice((1, 2))):
            pause()
            request.parts.append(self._a)
            self._send(CLIENT)
        self._do(Do.READ, CLIENT)
        request.a_to, request.b_to = self._a, self._b
        self._unanswered = request.parts[0]  # at the server's end, which saw a whole turn
        self._needs_quiet = True

    def pipelined(self) -> None:
        """Ask twice before the first answer, which is sent before the second question is read."""
        self._quiet()
        first = self._begin()
        self._send(CLIENT)
        first.a_to, first.b_from = self._a, self._b
        second = self._begin()
        self._send(CLIENT, read=False)
        second.a_to = self._a
        self._short()
        self._send(SERVER)
        first.b_to = second.b_from = self._b
        self._do(Do.READ, SERVER)
        self._short()
        self._send(SERVER)
        second.b_to = self._b

    def batch(self) -> None:
        """Two requests that are written at once and answered at once."""
        self._quiet()
        pair = [self._begin()]
        self._send(CLIENT)
        pair[0].a_to = self._a
        pair.append(self._begin())
        self._send(CLIENT)
        pair[1].a_to = self._a
        for one in pair:
            one.b_from = self._b
            self._send(SERVER)
            one.b_to = self._b

    def greeting(self) -> None:
        """The server speaks first; what answers it is no event either."""
        self._message(SERVER)
        if self._dice.random() < 0.2:
            self._long()
            self._message(SERVER)
        self._some()
        login = self._begin()
        self._message(CLIENT)
        self._asked(login)
        self._short()
        self._message(SERVER)
        login.b_to = self._b


READ_AT_ONCE = ("resumed", "streaming", "push", "replied", "hasty", "late_reply", "oneway", "batch")
ODD = (*READ_AT_ONCE, "resumed_unread", "upload", "pipelined")
