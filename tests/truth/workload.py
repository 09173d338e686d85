"""Build and run the workload generator (truth.c) for tests and benchmarks; needs a C compiler."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from join import Truth

HERE = Path(__file__).parent
BINARY = HERE.parents[1] / "build" / "truth" / "truth"


def build() -> Path:
    """Compile the generator if its sources are newer than the binary."""
    sources = [HERE / name for name in ("truth.c", "rpc.h", "log.h")]
    if not BINARY.exists() or BINARY.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        fresh = BINARY.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-pthread", "-o", fresh, sources[0]], check=True)
        fresh.replace(BINARY)
    return BINARY


def command(mode: str, options: Mapping[str, object], prefix: Sequence[str] = ()) -> list[str]:
    """Command line of a mode; an option `max_size=5` becomes `--max-size 5`, `True` a bare flag."""
    words: list[str] = []
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return [*prefix, str(build()), mode, *words]


def run_both(log: Path, **options: object) -> Truth:
    """Run client and server on loopback to the end and return their logs, aligned."""
    done = subprocess.run(command("both", {"log": log, **options}), check=True, capture_output=True, text=True)
    totals = [json.loads(line) for line in done.stdout.splitlines()]
    truth = Truth.load(log.with_name(f"{log.name}.client.npy"), log.with_name(f"{log.name}.server.npy"))
    assert [len(truth)] * 2 == [total["answered"] for total in totals]
    return truth
