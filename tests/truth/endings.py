"""How connections end; and whole scripts (scripts.py), of acts and an ending."""

from tests.truth.acts import ODD, READ_AT_ONCE, Acts
from tests.truth.pen import CLIENT, SERVER
from tests.truth.scripts import Do, Fate, Script


class Author(Acts):
    """Writes one script: mostly calls, and among them what is none."""

    def write(self) -> Script:
        """Write it."""
        dice = self._dice
        self.script.delayed_ack = dice.random() < 0.2
        if dice.random() < 0.05:
            self.script.delayed_ack = False
            self._act(dice.choice(("oneways_only", "lonely")))
            return self.script
        if self.script.delayed_ack:
            self._act("call")  # what has received nothing yet delays no acknowledgement
        elif dice.random() < 0.1:
            self._act("greeting")
        odd, odds = dice.choice((0, 0.1, 0.5)), READ_AT_ONCE if self.script.delayed_ack else ODD
        for _ in range(dice.randint(0, 9)):
            self._act(dice.choice(odds) if dice.random() < odd else "call")
        self._act(dice.choice(DELAYED_ENDS if self.script.delayed_ack else ENDS))
        return self.script

    def _act(self, name: str) -> None:
        self.script.acts.append(name)
        getattr(self, name)()

    def client_closes(self) -> None:
        self._last_words_are_over()
        self._some()
        self._do(Do.CLOSE, CLIENT)
        self._short()
        self._do(Do.CLOSE, SERVER)

    def server_closes(self) -> None:
        self._last_words_are_over()
        self._some()
        self._do(Do.CLOSE, SERVER)
        self._short()
        self._do(Do.CLOSE, CLIENT)

    def _last_words_are_over(self) -> None:
        """A message that was never answered looks like a request whose client gave up: end with a call instead."""
        if self._unanswered is not None:
            self.call()

    def half_closes(self) -> None:
        """Ask, say that there is no more to come, and be answered."""
        self._quiet()
        request = self._begin()
        self._message(CLIENT)
        self._asked(request)
        self._do(Do.SHUT, CLIENT)
        self._some()
        self._message(SERVER)
        request.b_to = self._b
        self._short()
        self._do(Do.CLOSE, SERVER)
        self._some()
        self._do(Do.CLOSE, CLIENT)

    def goodbye(self) -> None:
        """Say something that needs no answer, and close."""
        self._quiet()
        how = self._dice.choice(("client", "server") if self.script.delayed_ack else GOODBYES)
        self.script.acts[-1] += f" ({how})"
        self._unanswered = self._a
        self._send(CLIENT, read=how != "unread")
        self._soon()
        if how == "server":
            if not self.script.delayed_ack:
                self._take_for_an_answer("a goodbye whose FIN comes to a server's end that is gone")
            self._do(Do.CLOSE, SERVER)
            self._short()
            self._do(Do.CLOSE, CLIENT)
            return
        self._do(Do.SHUT if how == "shut" else Do.CLOSE, CLIENT)
        if how == "patient":
            self._late()
        self._do(Do.CLOSE, SERVER)
        if how == "shut":
            self._some()
            self._do(Do.CLOSE, CLIENT)

    def goodbye_after_fin(self) -> None:
        """The server closes with its answer; the client says goodbye to nobody."""
        self.call()
        self._do(self._dice.choice((Do.SHUT, Do.CLOSE)), SERVER)
        self._some()
        self._send(CLIENT, read=False)
        self._short()
        if self.script.steps[-1].do is Do.WAIT or self._dice.random() < 0.5:
            self._do(Do.CLOSE, CLIENT)
            self._do(Do.CLOSE, SERVER)
        else:
            self._do(Do.CLOSE, SERVER)
            self._do(Do.CLOSE, CLIENT)

    def answered_early_and_closed(self) -> None:
        """Answer 413 during the upload, say that there is no more to come, and read what comes."""
        self._quiet()
        request = self._begin()
        request.early = True
        self._send(CLIENT)
        request.b_from = self._b
        self._send(SERVER, read=False)
        self._do(Do.SHUT, SERVER)
        for _ in range(self._dice.choice((1, 2))):
            self._short()
            request.parts.append(self._a)
            self._send(CLIENT)
        self._do(Do.READ, CLIENT)
        request.a_to, request.b_to = self._a, self._b
        self._some()
        self._do(Do.CLOSE, CLIENT)
        self._do(Do.CLOSE, SERVER)

    def uploads_and_closes(self) -> None:
        """The same, but the server would have gone on: it takes the rest for a request."""
        self.upload()
        self._some()
        self._do(Do.CLOSE, CLIENT)
        self._do(Do.CLOSE, SERVER)

    def _ask_in_vain(self, *, read: bool = True) -> None:
        """Ask, and call for the answer: now, or when `_notice` says so."""
        self._quiet()
        request = self._begin()
        if read:
            self._message(CLIENT)
        else:
            self._send(CLIENT, read=False)
        self._asked(request)
        request.fate = Fate.FAILED
        if self._dice.random() < 0.5:
            self._do(Do.LOOK, CLIENT)

    def _notice(self) -> None:
        """Call for the answer, and be told that there will be none."""
        self._short()
        self._do(Do.LOOK, CLIENT)

    def unanswered(self) -> None:
        """The server closes instead of an answer; the client closes now or later."""
        self._ask_in_vain()
        self._some()
        if self.script.delayed_ack:
            self._do(Do.CLOSE, SERVER)
        else:
            self._do(self._dice.choice((Do.CLOSE, Do.SHUT)), SERVER)
        self._notice()
        if not self.script.delayed_ack:
            self._some()
        self._do(Do.CLOSE, CLIENT)
        self._do(Do.CLOSE, SERVER)

    def unanswered_unread(self) -> None:
        """The server closes and has not even read: a RST."""
        self._ask_in_vain(read=False)
        self._some()
        self._do(Do.CLOSE, SERVER)
        self._notice()
        self._some()
        self._do(Do.CLOSE, CLIENT)

    def gives_up(self) -> None:
        self._ask_in_vain()
        self._late()
        self._do(Do.CLOSE, CLIENT)
        self._short()
        self._do(Do.CLOSE, SERVER)

    def client_resets(self) -> None:
        self._ask_in_vain()
        self._some()
        self._do(Do.ABORT, CLIENT)
        self._do(Do.CLOSE, SERVER)

    def server_resets(self) -> None:
        self._ask_in_vain()
        self._some()
        self._do(Do.ABORT, SERVER)
        self._notice()
        self._some()
        self._do(Do.CLOSE, CLIENT)

    def reset_after_the_answer(self) -> None:
        self.call()
        self._some()
        first = self._dice.choice((CLIENT, SERVER))
        self._do(Do.ABORT, first)
        self._short()
        self._do(Do.CLOSE, SERVER if first is CLIENT else CLIENT)

    def keepalive_race(self) -> None:
        """The server closes an idle connection, on which the client asks once more."""
        self.call()
        self._long()
        self._do(Do.CLOSE, SERVER)
        self._dice.choice((self._long, self._late))()
        request = self._begin()
        self._send(CLIENT, read=False)
        self._asked(request)
        request.fate = Fate.FAILED
        self._notice()
        self._some()
        self._do(Do.CLOSE, CLIENT)

    def goodbye_refused(self) -> None:
        """The same, but what the client says is goodbye."""
        self.call()
        self._long()
        self._do(Do.CLOSE, SERVER)
        self._dice.choice((self._long, self._late))()
        self._send(CLIENT, read=False)
        self._soon()
        self._do(Do.CLOSE, CLIENT)

    # -- whole connections on which the server says nothing

    def oneways_only(self) -> None:
        for _ in range(self._dice.randint(2, 6)):
            self._quiet()
            self._message(CLIENT)
            self._needs_quiet = True
        self._some()
        first, second = self._dice.sample((CLIENT, SERVER), 2)
        self._do(self._dice.choice((Do.CLOSE, Do.CLOSE, Do.ABORT)), first)
        self._short()
        self._do(Do.CLOSE, second)

    def lonely(self) -> None:
        """One message and no more: if the connection lives on, it looks like a request whose client gave up."""
        self._unanswered = 0
        self._message(CLIENT)
        self._take_for_an_answer("an only message, never answered")
        self._some()
        self._do(Do.CLOSE, CLIENT)
        self._do(Do.CLOSE, SERVER)


GOODBYES = ("client", "server", "shut", "unread", "patient")
DELAYED_ENDS = ("client_closes", "server_closes", "goodbye", "unanswered")
ENDS = (
    *("client_closes", "server_closes", "half_closes", "goodbye", "goodbye_after_fin", "answered_early_and_closed"),
    *("unanswered", "unanswered_unread", "gives_up", "client_resets", "server_resets", "reset_after_the_answer"),
    *("keepalive_race", "uploads_and_closes", "goodbye_refused"),
)


def script(seed: int) -> Script:
    """Write the script of this seed."""
    return Author(seed).write()
