"""websocket_client.py SLOW_MS SLOW: two connections to a websocket service; one asks, one is sent news."""

import asyncio
import sys
from typing import Any

import websockets
from calls import Calls

QUESTIONS, ASIDES, NEWS = 300, 10, 20


async def ask(connection: Any, calls: Calls, question: str) -> int:
    """One RPC: how much news came before the answer."""
    news = 0
    with calls.call():
        await connection.send(question)
        while await connection.recv() != question:
            news += 1
    return news


async def main(slow_ms: int, slow: int) -> None:
    calls, among_pushes = Calls(), Calls()
    address = "ws://websocket:8765"
    with calls.call():  # the upgrade
        asked = await websockets.connect(address, ping_interval=None)
    for number in range(QUESTIONS):
        await ask(asked, calls, f"question {number}")
    for number in range(slow):
        await ask(asked, calls, f"slow {slow_ms} {number}")

    with calls.call():
        pushed = await websockets.connect(address, ping_interval=None)
    news = await ask(pushed, among_pushes, "news")
    for _ in range(3):  # the first ones make it a connection that is pushed to
        await pushed.recv()
        news += 1
    for number in range(ASIDES):
        news += await ask(pushed, among_pushes, f"aside {number}")
        await asyncio.sleep(0.3)
    while news < NEWS:
        await pushed.recv()
        news += 1
    with among_pushes.call():
        await pushed.close()

    with calls.call():  # idle meanwhile; a message each way
        await asked.close()
    calls.tell(among_pushes=len(among_pushes), news=news)


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
