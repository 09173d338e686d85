"""One RPC as each of its ends has measured it, for the tests of what explains it and of its forms."""

from msgspec.structs import replace

from latencyprobe import stages
from latencyprobe.report import explanation, model
from latencyprobe.report.words import Exchange
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import COVERAGE

PAIR = ("1ms", "2ms", "3ms", "90ms", "4us", "4ms")
JOINED = model.Slow(
    "4bf92f3577b34da6a3ce929d0e0e4736",
    "2026-09-21T14:03:00.123Z",
    "100.004ms",
    tuple(model.Stage(stage.name, length) for stage, length in zip(stages.PAIR, PAIR, strict=True)),
    "shop/cart",
    joined=True,
)
HALF = replace(
    JOINED,
    duration="90.004ms",
    peer="shop/frontend",
    joined=False,
    stages=(model.Stage("receive", "4us"), model.Stage("process", "90ms")),
)
CALL = model.WaitedFor("shop/redis:6379", 3, "44ms", "d" * 32)


def result(side: str, *slowest: model.Slow) -> model.Result:
    return model.Result("p", side, "cart", side, "1ms", "99", "1d", State.MET, 1, 0, 1, COVERAGE, "", slowest=slowest)


CLIENT, SERVER = result("Client", JOINED), result("Server", HALF)
End = tuple[model.Result, model.Slow]


def explained(*ends: End, known: tuple[str, ...] = (), said: str = "") -> explanation.Explanation:
    return explanation.explanation([Exchange(*one) for one in ends], "latencyprobe explain -n shop", known, said=said)
