"""A gRPC server and client of one process, of every kind of call, that log what each call was."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager

import grpc

SLOW_S = 30.0  # unless it is given up before
PAUSE_S = 0.15  # of a server that streams


class Handlers(grpc.GenericRpcHandler):
    """`/calls/KIND`: echo, fail, slow, held (the same, and says so), count (server streams), sum (client streams), chat
    (both)."""

    def __init__(self, held: threading.Semaphore) -> None:
        self._held = held

    def _hold(self, asked: bytes, context: grpc.ServicerContext) -> bytes:
        self._held.release()
        return _slow(asked, context)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        kind = details.method.rpartition("/")[2]
        return {
            "echo": grpc.unary_unary_rpc_method_handler(lambda asked, _: asked),
            "fail": grpc.unary_unary_rpc_method_handler(_fail),
            "slow": grpc.unary_unary_rpc_method_handler(_slow),
            "held": grpc.unary_unary_rpc_method_handler(self._hold),
            "count": grpc.unary_stream_rpc_method_handler(_count),
            "sum": grpc.stream_unary_rpc_method_handler(lambda asked, _: str(sum(1 for _ in asked)).encode()),
            "chat": grpc.stream_stream_rpc_method_handler(lambda asked, _: asked),
        }[kind]


def _fail(_: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "as asked")
    raise AssertionError


def _slow(asked: bytes, context: grpc.ServicerContext) -> bytes:
    over = threading.Event()
    context.add_callback(over.set)
    over.wait(SLOW_S)
    return asked


def _count(_: bytes, __: grpc.ServicerContext) -> Iterator[bytes]:
    for n in range(5):
        yield str(n).encode()
        threading.Event().wait(PAUSE_S)


class Grpc(AbstractContextManager["Grpc"]):
    """A server on `port`, and one channel to it, or to who listens on `through`. `made`: calls so far, by kind."""

    def __init__(self, port: int, through: int = 0, workers: int = 50, **options: int) -> None:
        """`options`: of the server, without their prefix."""
        self._held = threading.Semaphore(0)  # of calls that are under way
        of_server = [(f"grpc.{name}", value) for name, value in options.items()]
        self._server = grpc.server(
            futures.ThreadPoolExecutor(workers), handlers=(Handlers(self._held),), options=of_server
        )
        self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()
        self._channel = grpc.insecure_channel(f"127.0.0.1:{through or port}")
        grpc.channel_ready_future(self._channel).result(60)
        self.made: Counter[str] = Counter()
        self._noting = threading.Lock()

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._server.stop(1).wait()

    def _note(self, kind: str) -> None:
        with self._noting:
            self.made[kind] += 1

    def echo(self, message: bytes = b"x" * 100) -> None:
        """One unary call."""
        assert self._channel.unary_unary("/calls/echo")(message, timeout=30) == message
        self._note("echo")

    def fail(self) -> None:
        """One that the handler answers by an error."""
        assert self._code_of("fail", timeout_s=30) is grpc.StatusCode.INVALID_ARGUMENT
        self._note("fail")

    def late(self) -> None:
        """One whose deadline is over before the answer."""
        assert self._code_of("slow", timeout_s=0.1) is grpc.StatusCode.DEADLINE_EXCEEDED
        self._note("late")

    def _code_of(self, kind: str, timeout_s: float) -> grpc.StatusCode | None:
        """The status of a unary call that fails, None of one that does not."""
        try:
            self._channel.unary_unary(f"/calls/{kind}")(b"", timeout=timeout_s)
        except grpc.RpcError as error:
            return error.code()
        return None

    def cancel(self) -> None:
        """One that the client cancels when it is under way."""
        call = self._channel.unary_unary("/calls/held").future(b"")
        assert self._held.acquire(timeout=60)
        assert call.cancel()
        self._note("cancel")

    def count(self) -> None:
        """The server streams, with pauses."""
        assert len(list(self._channel.unary_stream("/calls/count")(b"", timeout=30))) == 5
        self._note("count")

    def sum(self) -> None:
        """The client streams."""
        assert self._channel.stream_unary("/calls/sum")(iter([b"x"] * 5), timeout=30) == b"5"
        self._note("sum")

    def chat(self) -> None:
        """Both stream, in turns."""
        answered = threading.Semaphore(1)

        def asks() -> Iterator[bytes]:
            for _ in range(5):
                answered.acquire()
                yield b"x"

        for _ in self._channel.stream_stream("/calls/chat")(asks(), timeout=30):
            answered.release()
        self._note("chat")


def at_once(count: int, threads: int, call: Callable[[], None]) -> None:
    """Make `count` calls, as many at a time as there are threads."""
    with futures.ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(call) for _ in range(count)]:
            done.result()
