"""Asks slow servers (slow_server.py), all at a time, each by one connection: `slow_client.py HOST:PORT=TIMES...`."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from calls import Calls
from slow_server import connected, question


def use(words: str) -> int:
    address, _, times = words.partition("=")
    host, _, port = address.partition(":")
    calls = Calls()
    with connected(host, int(port)) as connection:
        for _ in range(int(times)):
            with calls.call():
                question(connection)
    return len(calls)


with ThreadPoolExecutor(len(sys.argv)) as threads:
    print(json.dumps(list(threads.map(use, sys.argv[1:]))))
