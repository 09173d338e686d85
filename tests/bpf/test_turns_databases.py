"""MariaDB and PostgreSQL beyond questions and answers: statements that are closed, goodbyes, replication.

Greeting and sign-in are `setup`; each other command of the client is an RPC if it has an answer.
"""

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import COMMAND

from latencyprobe_agent.vocabulary.records import Role
from tests.support.certificates import make_certificate
from tests.support.ports import free_port
from tests.support.servers import mariadb, pg, postgres, postgres_programs, version
from tests.support.waiting import wait_until
from tests.truth.calls import (
    ROLES,
    Calls,
    assert_events_are_calls,
    assert_nothing_is_lost,
    boot_ns,
    events,
    excluded,
    failures,
    of_clients,
    tell,
)

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

MARIADB_PORT = free_port()  # the server stays up between tests
PAUSE_S = 0.4  # above the 250 ms that are silence
CLOSE_WAIT = 8  # include/net/tcp_states.h: the peer has closed


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Software and version."""
    with mariadb(tmp_path_factory.mktemp("mariadb"), MARIADB_PORT):
        yield f"MariaDB {version('mariadbd', '--version')}"


class Client(pymysql.Connection):
    """PyMySQL with prepared statements, which it lacks, and a log of what it asks."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        super().__init__(host="127.0.0.1", port=MARIADB_PORT, user="root", ssl_disabled=True)

    def ask(self, sql: str) -> None:
        with self.calls.call():
            self.query(sql)

    def set_character_set(self, charset: str, collation: str | None = None) -> None:
        with self.calls.call():  # PyMySQL's own first question
            super().set_character_set(charset, collation)

    def autocommit(self, value: bool) -> None:
        with self.calls.call():  # and its second one
            super().autocommit(value)

    def prepare(self, sql: str) -> int:
        """The statement's number. COM_STMT_PREPARE: one answer of several packets."""
        with self.calls.call():
            self._execute_command(COMMAND.COM_STMT_PREPARE, sql)
            told = self._read_packet().get_all_data()
            statement, columns, parameters = struct.unpack_from("<IHH", told, 1)
            for count in (columns, parameters):
                for _ in range(count + 1 if count else 0):  # with an end marker
                    self._read_packet()
        return int(statement)

    def execute(self, statement: int) -> None:
        """COM_STMT_EXECUTE of a statement without parameters that returns one row."""
        with self.calls.call():
            self._execute_command(COMMAND.COM_STMT_EXECUTE, struct.pack("<IBI", statement, 0, 1))
            markers = 0
            self._read_packet()
            while markers < 2:  # behind the columns and behind the rows
                markers += self._read_packet().is_eof_packet()

    def close_statement(self, statement: int) -> None:
        """COM_STMT_CLOSE, which has no answer."""
        self._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", statement))

    def quit(self, *, at_once: bool) -> None:
        """COM_QUIT, after which the server closes; so do we, at once or when it has."""
        self._execute_command(COMMAND.COM_QUIT, b"")
        if not at_once:
            wait_until(
                lambda: self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSE_WAIT, "its FIN"
            )
        self._force_close()


def test_a_closed_statement_and_the_pause_behind_it_are_no_part_of_the_next_query(flushed, maria):
    """COM_STMT_CLOSE has no answer: behind a pause it is one-way, before a query at once a part of its request."""
    calls = Calls()
    flushed.measure(MARIADB_PORT)
    client = Client(calls)
    for _ in range(5):
        statement = client.prepare("SELECT 1")
        client.execute(statement)
        client.close_statement(statement)
        time.sleep(PAUSE_S)
        client.ask("SELECT 2")
    client.close()
    records = flushed.records_of_closed(2)
    tell(maria, "prepared statements, a pause behind each COM_STMT_CLOSE", calls, records)
    assert_events_are_calls(calls, records)
    assert_nothing_is_lost(records)
    for role in ROLES:
        assert excluded(records, role) == {"setup": 2, "oneway": 5, "teardown": 1}


@pytest.mark.parametrize("at_once", [True, False])
def test_com_quit_fails_nothing_whoever_closes_first(flushed, maria, at_once):
    """The client closes at once, or after the server has. (A second later it would be an unanswered request.)"""
    calls, connections = Calls(), 20
    flushed.measure(MARIADB_PORT)

    def call(_: int) -> None:
        client = Client(calls)
        for _ in range(3):
            client.ask("SELECT 1")
        client.quit(at_once=at_once)

    for number in range(connections):
        call(number)
    records = flushed.records_of_closed(2 * connections)
    tell(
        maria,
        f"short connections, COM_QUIT, {'both close' if at_once else 'the server closes first'}",
        calls,
        records,
    )
    assert_events_are_calls(calls, records)
    assert_nothing_is_lost(records)
    for role in ROLES:
        assert excluded(records, role) == {"setup": 2 * connections, "teardown": connections}


def test_a_pool_of_connections_to_mariadb_loses_nothing(flushed, maria):
    calls = Calls()
    flushed.measure(MARIADB_PORT)
    clients = [Client(calls) for _ in range(4)]

    def call(client: Client) -> None:
        for _ in range(500):
            client.ask("SELECT 1")

    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(call, clients))
    time.sleep(PAUSE_S)
    for client in clients:
        client.ask("SELECT 2")
        client.close()
    records = flushed.records_of_ended()
    tell(maria, "a pool of 4, 2,000 queries", calls, records)
    assert_events_are_calls(calls, records)
    assert_nothing_is_lost(records)


@pytest.fixture
def certificate() -> Iterator[tuple[Path, Path]]:
    """One that PostgreSQL may read, and its key."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificate(Path(folder), "postgres")
        for path in (folder, *made):
            shutil.chown(path, "postgres")
        yield made


@pytest.mark.parametrize("protocol", ["", "TLSv1.2", "TLSv1.3"])
def test_what_the_docs_leave_out_of_postgresql_is_its_sign_in(flushed, certificate, port, protocol):
    """With SCRAM, after an SSLRequest: 4 turns, and 2 of TLS."""
    crt, key = certificate
    files = ("-c", f"ssl_cert_file={crt}", "-c", f"ssl_key_file={key}")
    version_ = ("-c", f"ssl_min_protocol_version={protocol}", "-c", f"ssl_max_protocol_version={protocol}")
    mode = "require" if protocol else "prefer"
    client = ["env", f"PGSSLMODE={mode}", "PGGSSENCMODE=disable", "PGPASSWORD=secret", "psql", "-h", "127.0.0.1"]
    client += ["-p", str(port), "-U", "scram", "-d", "postgres", "-Atq", *3 * ["-c", "SELECT 1"]]
    with postgres(port, *(("-c", "ssl=on", *files, *version_) if protocol else ())):

        def ask(sql: str) -> str:
            return subprocess.run(pg(port, "psql", "-Atqc", sql), check=True, capture_output=True, text=True).stdout

        ask("CREATE ROLE scram LOGIN PASSWORD 'secret'")
        Path(ask("SHOW hba_file").strip()).write_text("host all scram all scram-sha-256\nhost all all all trust\n")
        ask("SELECT pg_reload_conf()")
        wait_until(lambda: "scram-sha-256" in ask("SELECT auth_method FROM pg_hba_file_rules"), "it asks for passwords")
        flushed.measure(port, setup_turns=4, tls=bool(protocol))
        assert subprocess.run(client, check=True, capture_output=True, text=True).stdout.split() == 3 * ["1"]
    records = flushed.records_of_ended()
    tell(
        f"PostgreSQL {version(postgres_programs() / 'postgres', '--version')}",
        f"psql, SCRAM, {protocol or 'in clear text'}",
        3,
        records,
    )
    for role in ROLES:
        assert len(events(records, role)) == 3, role.name
        assert excluded(records, role)["setup"] == 4 + 2 * bool(protocol)


def test_status_updates_of_a_standby_make_no_events(flushed, tmp_path, port):
    """pg_receivewal says once a second how far it is, and nobody answers; each INSERT is sent to it."""
    asked = 0

    def ask(sql: str) -> str:
        """What psql prints. It signs in, asks and leaves."""
        nonlocal asked
        asked += 1
        return subprocess.run(pg(port, "psql", "-Atqc", sql), check=True, capture_output=True, text=True).stdout

    with postgres(port):
        flushed.measure(port)
        receiver = subprocess.Popen(
            pg(port, str(postgres_programs() / "pg_receivewal"), "-D", str(tmp_path), "-s", "1", "--no-loop"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            ask("CREATE TABLE news (number int)")
            wait_until(lambda: "streaming" in ask("SELECT state FROM pg_stat_replication"), "it receives")
            receives_ns = boot_ns()
            (receiver_port,) = map(int, ask("SELECT client_port FROM pg_stat_replication").split())
            time.sleep(4)
            for number in range(5):
                ask(f"INSERT INTO news VALUES ({number})")
                time.sleep(0.5)
        finally:
            receiver.terminate()
            receiver.wait(10)
    of_receiver, others = of_clients(flushed.records_of_ended(), receiver_port)
    software = f"PostgreSQL {version(postgres_programs() / 'postgres', '--version')}"
    tell(software, "pg_receivewal, a status once a second", "its sign-in", of_receiver)
    tell(software, "psql: a sign-in and a query each", 2 * asked, others)
    for role in ROLES:
        mine = events(of_receiver, role)
        starts_ns = mine["send_start_ns" if role is Role.CLIENT else "ready_first_ns"]
        assert (starts_ns < receives_ns).all(), f"{role.name}: {(starts_ns >= receives_ns).sum()} events of a standby"
        assert excluded(of_receiver, role)["push"] > 0
        assert len(events(others, role)) == 2 * asked
        assert not failures(events(others, role))
    assert_nothing_is_lost(others)
