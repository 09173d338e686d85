"""A websocket service: it echoes each message, and whoever has asked for `news` gets some all the time."""

import asyncio
import sys
from itertools import count
from typing import Any

import websockets

NEWS_EVERY_S = 0.4  # above the 250 ms that are silence


async def serve(connection: Any) -> None:
    publishing = None
    try:
        async for message in connection:
            if message.startswith("slow"):
                await asyncio.sleep(int(message.split()[1]) / 1000)
            await connection.send(message)
            if message == "news":
                publishing = asyncio.create_task(publish(connection))
    finally:
        if publishing:
            publishing.cancel()


async def publish(connection: Any) -> None:
    for number in count():
        await asyncio.sleep(NEWS_EVERY_S)
        await connection.send(f"news {number}")


async def main(port: int) -> None:
    async with websockets.serve(serve, "0.0.0.0", port, ping_interval=None):
        await asyncio.Future()


asyncio.run(main(int(sys.argv[1])))
