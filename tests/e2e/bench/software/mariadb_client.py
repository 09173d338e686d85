"""mariadb_client.py SLOW_MS SLOW: an application with a pool of connections to a MariaDB, and prepared statements."""

import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pymysql
from calls import Calls
from pymysql.constants import COMMAND

CONNECTIONS, STATEMENTS, QUERIES = 4, 5, 60
SILENCE_S = 0.2
PAUSE_S = 2 * SILENCE_S


class Connection(pymysql.connections.Connection):
    """PyMySQL with prepared statements, which it lacks, and a log of what it asks."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._closed_s: float | None = None  # when the latest statement was, if nothing was asked since
        self.oneway_at_most = 0
        super().__init__(host="mariadb", user="root", ssl_disabled=True)

    def ask(self, sql: str) -> None:
        if self._closed_s is not None and time.monotonic() - self._closed_s > SILENCE_S / 2:
            self.oneway_at_most += 1
        self._closed_s = None
        with self._calls.call():
            self.query(sql)

    def set_character_set(self, *words: object) -> None:
        with self._calls.call():  # what newer versions ask first
            super().set_character_set(*words)

    def autocommit(self, value: bool) -> None:
        with self._calls.call():  # PyMySQL's own first question
            super().autocommit(value)

    def prepare(self, sql: str) -> int:
        """The statement's number. COM_STMT_PREPARE: one answer of several packets."""
        with self._calls.call():
            self._execute_command(COMMAND.COM_STMT_PREPARE, sql)
            told = self._read_packet().get_all_data()
            statement, columns, parameters = struct.unpack_from("<IHH", told, 1)
            for count in (columns, parameters):
                for _ in range(count + 1 if count else 0):  # with an end marker
                    self._read_packet()
        return int(statement)

    def execute(self, statement: int) -> None:
        """COM_STMT_EXECUTE of a statement without parameters that returns one row."""
        with self._calls.call():
            self._execute_command(COMMAND.COM_STMT_EXECUTE, struct.pack("<IBI", statement, 0, 1))
            markers = 0
            self._read_packet()
            while markers < 2:  # behind the columns and behind the rows
                markers += self._read_packet().is_eof_packet()

    def close_statement(self, statement: int) -> None:
        """COM_STMT_CLOSE, which has no answer."""
        self._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", statement))
        self._closed_s = time.monotonic()


def use(connection: Connection, slow_ms: int, slow: int) -> None:
    """Some pages' worth of queries, a pause behind each; at the end COM_QUIT, which has no answer either."""
    for _ in range(STATEMENTS):
        statement = connection.prepare("SELECT 1")
        for _ in range(5):
            connection.execute(statement)
        connection.close_statement(statement)
        time.sleep(PAUSE_S)
        connection.ask("SELECT 2")
        connection.close_statement(connection.prepare("SELECT 3"))
        connection.ask("SELECT 4")  # at once: what was closed is a part of this request
    for number in range(QUERIES):
        connection.ask(f"SELECT {number}")
    for _ in range(slow):
        connection.ask(f"SELECT SLEEP({slow_ms / 1000})")
    time.sleep(2.5)  # idle for longer than the agent waits for more
    connection.ask("SELECT 5")
    connection.close()


def main(slow_ms: int, slow: int) -> None:
    calls = Calls()
    pool = [Connection(calls) for _ in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(lambda one: use(one, slow_ms, slow // CONNECTIONS), pool))
    calls.tell(
        connections=CONNECTIONS,
        oneway=CONNECTIONS * STATEMENTS,
        oneway_at_most=sum(one.oneway_at_most for one in pool),  # more if this machine stood still behind a statement
    )


main(int(sys.argv[1]), int(sys.argv[2]))
