"""Asks slow servers (slow_server.py), all at a time: `slow_client.py HOST:PORT=TIMES[:WAY]...`.

(none)   by one connection, one question after the other
anew     by a connection of its own each
crowd    so too, four at a time
slowly   by one connection with a small receive buffer, and it takes its time with each piece of an answer
"""

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from calls import Calls
from slow_server import connected, question

CROWD = 4
PAUSE_S, BUFFER_BYTES = 0.002, 16 << 10


def steadily(host: str, port: int, times: int, calls: Calls) -> None:
    with connected(host, port) as connection:
        for _ in range(times):
            with calls.call():
                question(connection)


def anew(host: str, port: int, times: int, calls: Calls) -> None:
    for _ in range(times):
        with calls.call(), connected(host, port) as connection:
            question(connection)


def crowd(host: str, port: int, times: int, calls: Calls) -> None:
    with ThreadPoolExecutor(CROWD) as some:
        for done in [some.submit(anew, host, port, times // CROWD, calls) for _ in range(CROWD)]:
            done.result()


def slowly(host: str, port: int, times: int, calls: Calls) -> None:
    with connected(host, port, BUFFER_BYTES) as connection:
        for _ in range(times):
            with calls.call():
                question(connection, lambda: time.sleep(PAUSE_S))


WAYS: dict[str, Callable[[str, int, int, Calls], None]] = {
    "": steadily,
    "anew": anew,
    "crowd": crowd,
    "slowly": slowly,
}


def use(words: str) -> int:
    address, _, asked = words.partition("=")
    host, _, port = address.partition(":")
    times, _, way = asked.partition(":")
    calls = Calls()
    WAYS[way](host, int(port), int(times), calls)
    return len(calls)


with ThreadPoolExecutor(len(sys.argv)) as threads:
    print(json.dumps(list(threads.map(use, sys.argv[1:]))))
