"""Fixtures of kernel tests: measuring sessions, what records beside them, connections and networks."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.kernel.hooks import KERNEL_BTF, Hooks
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.signals.table import EXCHANGES, HANDSHAKES, WAITS, EvidenceSignal
from tests.support.ports import free_port
from tests.truth.following import Followed, following
from tests.truth.handshake_table import Table
from tests.truth.handshaking import at_packets
from tests.truth.lossy import Network, network
from tests.truth.netns import Namespace, joined
from tests.truth.peers import Peers
from tests.truth.recorder import OBJECTS, Recorder, beside
from tests.truth.reuse import Reuse
from tests.truth.session import OBJECT, Drainer, Session, open_programs
from tests.truth.slow_files import SlowFiles, slow_files
from tests.truth.streams import Streams, of_kernels_that_tell_streams
from tests.truth.waiting_client import BOTH, SLOW, Asked, Server, waiting_server


@pytest.fixture
def port() -> int:
    """A port that nobody uses."""
    return free_port()


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    """The namespaces of client and server."""
    with joined() as both:
        yield both


@pytest.fixture
def ends(pair: tuple[Namespace, Namespace]) -> Iterator[tuple[Namespace, Namespace]]:
    """The same, which lose nothing yet and are as the kernel makes them."""
    yield pair
    for namespace in pair:
        namespace.unfilter()
        namespace.sysctl("net.ipv4.tcp_timestamps", 1)
        namespace.sysctl("net.ipv4.tcp_syncookies", 1)
        namespace.sysctl("net.ipv4.tcp_syn_retries", 6)
        namespace.sysctl("net.ipv4.tcp_fastopen", 1)


@pytest.fixture(scope="module")
def reno() -> Iterator[Network]:
    """A network whose ends use reno."""
    with network() as one:
        yield one


@pytest.fixture
def lossy(reno: Network) -> Iterator[Network]:
    """The same, which loses nothing yet; its timers are as usual."""
    yield reno
    reno.mend()
    reno.client.sysctl("net.ipv4.tcp_early_retrans", 3)
    reno.client.sysctl("net.ipv4.tcp_min_rtt_wlen", 300)


@pytest.fixture
def make_session() -> Iterator[Callable[..., Session]]:
    """Open a session with maps of other sizes, one that is drained less often, or of another object."""
    opened: list[Session] = []

    def make(
        ring_bytes: int | None = None,
        drain_s: float = 0.02,
        path: Path = OBJECT,
        entries: Mapping[str, int] | None = None,
    ) -> Session:
        programs = open_programs(entries, path) if entries else Programs.open(path, ring_bytes=ring_bytes)
        opened.append(Session(programs, drain_s))
        return opened[-1]

    yield make
    for session in opened:
        session.close()


@pytest.fixture
def make_stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., tuple[Session, Drainer]]]:
    """Open a session with maps of other sizes, drained by a process that can be stopped."""
    opened: list[tuple[Session, Drainer]] = []

    def make(ring_bytes: int, **entries: int) -> tuple[Session, Drainer]:
        programs = open_programs({EXCHANGES.ring: ring_bytes, **entries})
        drainer = Drainer(programs, tmp_path_factory.mktemp("drained"))
        opened.append((Session(programs, 0.005, drainer.take), drainer))
        return opened[-1]

    yield make
    for session, drainer in opened:
        drainer.close()
        session.close()


@pytest.fixture(scope="module")
def reuse() -> Iterator[Reuse]:
    """Programs for all tests of a file, one after the other."""
    with Reuse() as programs:
        yield programs


@pytest.fixture
def session(reuse: Reuse) -> Iterator[Session]:
    """Attached programs that measure nothing yet."""
    one = reuse.session()
    yield one
    reuse.take_back(one)


@pytest.fixture
def streams(session: Session) -> Iterator[Streams]:
    """The session, which can tell streams of HTTP/2 too, on kernels that let it."""
    of_kernels_that_tell_streams()
    with Streams(session) as one:
        yield one


@pytest.fixture
def flushed(session: Session) -> Iterator[Session]:
    """Attached programs whose quiet exchanges end once a second, as the agent has it."""
    over = threading.Event()

    def flush() -> None:
        while not over.wait(1):
            session.programs.flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    yield session
    over.set()
    flusher.join()


@pytest.fixture
def record(session: Session) -> Iterator[Callable[[EvidenceSignal], Recorder]]:
    """Attach a signal of evidence beside the session, and record it from now on."""
    with ExitStack() as stack:
        yield lambda signal: stack.enter_context(beside(session.programs, signal))


@pytest.fixture
def peers(session: Session, port: int) -> Iterator[Peers]:
    """A connection that is measured from its beginning."""
    session.measure(port)
    connected = Peers(port)
    yield connected
    connected.close()


@pytest.fixture(scope="session")  # before all others, which could not attach
def needs_storage() -> None:
    """Leave out, and say why, what a kernel cannot do that gives tracing programs no socket storage."""
    with Hooks(KERNEL_BTF) as hooks:
        if not hooks.socket_storage:
            pytest.xfail("this kernel gives tracing programs no socket storage (docs/limits.md)")


@pytest.fixture(scope="module")
def hosts(pair: tuple[Namespace, Namespace]) -> tuple[Namespace, Namespace]:
    """(client, server): the pair, where every test leaves it as it was."""
    return pair


@pytest.fixture
def follow() -> Iterator[Callable[..., Followed]]:
    """Follow the records of TCP-RT of one port, both sides of it, or of others."""
    with following() as make:
        yield make


@pytest.fixture(scope="module")
def attached(pair: tuple[Namespace, Namespace]) -> Iterator[list[Attached]]:
    """The programs of both methods, the packets' at each end, for all ports: to load them takes a second."""
    with ExitStack() as stack:
        kernel = EvidencePrograms.alone(OBJECTS, HANDSHAKES, Filter(), ring_bytes=1 << 26)
        yield [stack.enter_context(one) for one in (kernel, *map(at_packets, pair))]


@pytest.fixture
def watch(attached: list[Attached], ends: object, port: int) -> Iterator[Recorder]:
    """Record the handshakes of this test's port, by both methods."""
    with Recorder(HANDSHAKES, *attached, port=port) as recorder:
        yield recorder


@pytest.fixture(scope="module")
def loaded() -> Iterator[Table]:
    """The programs of handshakes from packets, which know what was left in them."""
    opened = Table()
    yield opened
    opened.close()


@pytest.fixture
def table(loaded: Table) -> Table:
    """An empty table; sweeping it takes out whatever is there."""
    loaded.clear(timeout_ns=0)
    return loaded


@pytest.fixture
def waits(session: Session, port: int, record: Callable[[EvidenceSignal], Recorder]) -> Recorder:
    """Records of waits of servers of this port that last longer than 20 ms."""
    session.measure(port, evidence=BOTH, waits=SLOW)
    return record(WAITS)


@pytest.fixture
def server(waits: Recorder, port: int) -> Iterator[Server]:
    """A server that waits as it is asked to."""
    with waiting_server(port) as one:
        yield one


@pytest.fixture
def asked(server: Server) -> Asked:
    """A connection to it."""
    return server.connect()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SlowFiles]:
    """A slow file system."""
    try:
        with slow_files(tmp_path) as one:
            yield one
    except OSError as error:
        pytest.skip(str(error))


@pytest.fixture
def own_cgroup() -> Iterator[int]:
    """Id of a cgroup in which this process is for a while, and nobody else: the sockets of whatever else runs here
    take no room, since the plan asks about none of them."""
    root = find_root()
    home = root / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    folder = root / f"lp-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        yield folder.stat().st_ino
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()
