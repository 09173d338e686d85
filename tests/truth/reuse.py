"""Programs that serve one session after the other: to have them verified takes more than a second each time, and in a
guest half a minute."""

from contextlib import AbstractContextManager

from latencyprobe_agent.kernel.attached import u32
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.rules import NO_RULES
from latencyprobe_agent.vocabulary.records import Lost
from tests.truth.session import OBJECT, Session


class Reuse(AbstractContextManager["Reuse"]):
    """The programs of sessions that are over, measuring nothing; who needs some gets them, or new ones."""

    def __init__(self) -> None:
        self._spare: list[Programs] = []

    def session(self) -> Session:
        """Return a session that measures nothing yet, as if its programs had just been opened."""
        return Session(self._spare.pop() if self._spare else Programs.open(OBJECT), drain_s=0.02)

    def take_back(self, session: Session) -> None:
        """End a session, and keep its programs unless something was done to them that cannot be undone."""
        programs = session.end()
        if programs and session.whole and cleared(programs):
            self._spare.append(programs)
        elif programs:
            programs.close()

    def __exit__(self, *_: object) -> None:
        while self._spare:
            self._spare.pop().close()


def cleared(programs: Programs) -> bool:
    """Let go of all sockets and forget what was counted and recorded. False where that cannot be: no iterator leads to
    the sockets, or programs were skipped, which the kernel goes on counting."""
    if "flush" not in programs.variants:
        return False
    programs.apply(NO_RULES, idle_timeout_ns=0, own_tgid=0, owner_by_process=False)
    while len(programs.drain()):
        pass
    programs.forget(programs.counts()[0])
    sets = programs.map("unaccounted").max_entries
    for name, kinds in (("lost", len(Lost)), (".data.rate", 1), ("unaccounted", sets)):
        counters = programs.map(name)
        for kind in range(kinds):
            counters.update(u32(kind), bytes(counters.value_size))
    return not any(programs.lost().values())
