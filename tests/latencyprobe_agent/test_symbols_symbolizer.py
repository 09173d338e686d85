"""Names of real processes, and what becomes of an answer when the process that finds names does not behave."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from latencyprobe_agent.symbols.messages import LENGTH, Answer, packed
from latencyprobe_agent.symbols.symbolizer import Symbolizer
from tests.support import mapped
from tests.support.waiting import wait_until

SOURCE = Path(mapped.__file__).with_name("named.c")
OF_PYTHON = """
import ctypes, sys
print(hex(ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p).value))
print(hex(ctypes.cast(ctypes.CDLL(None).nanosleep, ctypes.c_void_p).value), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def symbolizer() -> Iterator[Symbolizer]:
    with Symbolizer() as one:
        yield one


@contextmanager
def waiting(*command: str | Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A program that prints addresses, and these."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = 2 if "-c" in command else 3
        try:
            yield process, [int(process.stdout.readline(), 16) for _ in range(lines)]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("named") / "named"
    flags = ("-O1", "-fno-omit-frame-pointer", "-Wl,--build-id")
    subprocess.run(["cc", *flags, "-Wall", "-Werror", "-o", binary, SOURCE], check=True)
    return binary


@pytest.mark.root  # as all that compiles
def test_functions_of_a_program_have_their_names_wherever_inside_an_address_is(
    symbolizer: Symbolizer, program: Path
) -> None:
    with waiting(program) as (process, addresses):
        inner, outer, main = addresses
        names = symbolizer.user(process.pid, [inner, inner + 1, outer + 5, main, inner])
    assert ["inner_function", "inner_function", "outer_function", "main", "inner_function"] == names


def test_functions_of_an_interpreter_and_of_its_library(symbolizer: Symbolizer) -> None:
    with waiting(sys.executable, "-c", OF_PYTHON) as (process, addresses):
        assert ["PyObject_Call", "nanosleep"] == symbolizer.user(process.pid, [address + 4 for address in addresses])


@pytest.mark.root  # as all that compiles
def test_a_stripped_program_says_which_file_it_is(symbolizer: Symbolizer, program: Path) -> None:
    stripped = program.with_name("stripped")
    subprocess.run(["strip", "-o", stripped, program], check=True)
    with waiting(stripped) as (process, addresses):
        assert ["stripped()"] * 3 == symbolizer.user(process.pid, addresses)


@pytest.mark.root
def test_symbols_that_packages_keep_apart_are_found_by_build_id(
    symbolizer: Symbolizer, program: Path, tmp_path: Path
) -> None:
    root = mapped.fresh(tmp_path / "root")
    told = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    build_id = told.split("Build ID: ")[1].split()[0]
    debug = root / "usr" / "lib" / "debug" / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["strip", "-o", root / "app", program], check=True)
    table = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    inner = next(int(line.split()[0], 16) for line in table.splitlines() if line.endswith(" inner_function"))
    with mapped.mapping(mapped.build(tmp_path), root, ["/app"]) as process:
        assert ["inner_function"] == symbolizer.user(process.pid, [process.addresses[0] + inner])


@pytest.mark.root  # as all that compiles
def test_a_file_that_was_replaced_is_not_taken_for_the_one_that_runs(symbolizer: Symbolizer, program: Path) -> None:
    upgraded = program.with_name("upgraded")
    shutil.copy(program, upgraded)
    with waiting(upgraded) as (process, (inner, *_)):
        upgraded.unlink()
        shutil.copy("/bin/true", upgraded)
        (name,) = symbolizer.user(process.pid, [inner])
    assert name.startswith("upgraded+0x")
    assert "deleted" in symbolizer.unnamed


@pytest.mark.root  # as all that compiles
def test_of_a_process_that_has_ended_known_names_files_and_offsets_are_left(
    symbolizer: Symbolizer, program: Path
) -> None:
    with waiting(program) as (process, (inner, outer, main)):
        assert ["inner_function"] == symbolizer.user(process.pid, [inner])
    known, *names = symbolizer.user(process.pid, [inner, outer, main])
    assert "inner_function" == known
    assert [True, True] == [name.startswith("named+0x") for name in names]
    assert main - outer == int(names[1].split("+0x")[1], 16) - int(names[0].split("+0x")[1], 16)


@pytest.mark.root  # as all that compiles
def test_nothing_is_said_of_a_process_that_began_after_the_stack_was_taken(
    symbolizer: Symbolizer, program: Path
) -> None:
    with waiting(program) as (process, (inner, *_)):
        assert ["[unknown]"] == symbolizer.user(process.pid, [inner], taken_ns=1)
        assert ["inner_function"] == symbolizer.user(process.pid, [inner], taken_ns=1 << 62)


def test_addresses_without_a_file_and_processes_that_never_were_are_unknown(symbolizer: Symbolizer) -> None:
    assert ["[unknown]"] * 2 == symbolizer.user(os.getpid(), [0, (1 << 64) - 1])
    assert ["[unknown]"] == symbolizer.user((1 << 22) + 1, [4096])


def test_more_addresses_than_fit_into_one_question(symbolizer: Symbolizer) -> None:
    call = ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p).value
    assert call
    asked = [call, *range(3000), call + 1]
    names = symbolizer.user(os.getpid(), asked)
    assert ["PyObject_Call"] + ["[unknown]"] * 3000 + ["PyObject_Call"] == names


@pytest.mark.root
def test_functions_of_the_kernel(symbolizer: Symbolizer) -> None:
    table = [line.split() for line in Path("/proc/kallsyms").read_text().splitlines()]
    starts = {name: int(address, 16) for address, kind, name, *_ in table if kind in "tT"}
    asked = ["do_nanosleep", "schedule", "tcp_retransmit_skb"]
    assert asked == symbolizer.kernel([starts[name] + 3 for name in asked])
    assert asked == symbolizer.kernel([starts[name] + 3 for name in asked])
    assert ["[unknown]"] == symbolizer.kernel([4096])


@pytest.mark.root
def test_a_process_with_a_root_of_its_own(symbolizer: Symbolizer, tmp_path: Path) -> None:
    root = mapped.fresh(tmp_path / "root")
    (root / "usr" / "lib").mkdir(parents=True)
    (root / "lib").symlink_to("/usr/lib")
    (root / "usr" / "lib" / "libapp.so").write_bytes(mapped.elf([b"_ZN3app7connectEi", b"_RNvC3app4main"]))
    with mapped.mapping(mapped.build(tmp_path), root, ["/lib/libapp.so"]) as process:
        code = process.addresses[0] + mapped.CODE
        names = symbolizer.user(process.pid, [code, code + 16, code + 32])
    assert ["app::connect(int)", "app::main", "libapp.so()"] == names


def test_the_one_that_finds_names_may_die_and_another_takes_over() -> None:
    call = ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p).value
    assert call
    with Symbolizer() as symbolizer:
        assert ["PyObject_Call"] == symbolizer.user(os.getpid(), [call])
        first = symbolizer.pid
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: symbolizer.pid == 0, "it has ended, and was waited for")
        assert ["PyObject_Call"] == symbolizer.user(os.getpid(), [call])
        assert symbolizer.pid not in (0, first)
    assert 0 == symbolizer.pid


def test_one_that_ends_in_the_moment_of_a_question_is_replaced_and_nobody_blamed(tmp_path: Path) -> None:
    """As after a minute without questions: the first one takes the question with it, the second one answers."""
    mark = tmp_path / "mark"
    answer = packed(Answer(["name"], {}))
    code = f"""
import os, pathlib, sys
sys.stdin.buffer.read(4)
mark = pathlib.Path({str(mark)!r})
if not mark.exists():
    mark.touch()
    sys.exit(0)
os.write(1, {answer!r})
sys.stdin.read()
"""
    with Symbolizer(command=python(code)) as symbolizer:
        assert ["name"] == symbolizer.user(1, [1])
        assert not symbolizer.unnamed


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


NO_TEXT = packed(Answer(["name"], {})).replace(b"n", b"\xff")


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdin.buffer.read(4); sys.exit(1)",
        "import os, sys; sys.stdin.buffer.read(4); os.write(1, b'\\xff' * 8)",
        f"import os, sys; sys.stdin.buffer.read(4); os.write(1, {LENGTH.pack(5) + b'nonsense'!r})",
        f"import os, sys; sys.stdin.buffer.read(4); os.write(1, {packed(Answer(['one', 'two'], {}))!r})",
        "import os, sys; sys.stdin.buffer.read(4); os.write(1, b'\\0\\1'); os.close(1); sys.stdin.read()",
        f"import os, sys; sys.stdin.buffer.read(4); os.write(1, {NO_TEXT!r})",
    ],
    ids=["dies", "too much", "nonsense", "too many names", "half an answer", "no text"],
)
def test_what_does_not_answer_as_it_must_is_replaced_and_its_process_not_asked_about_again(code: str) -> None:
    now = [0.0]
    with Symbolizer(command=python(code), now=lambda: now[0]) as symbolizer:
        assert ["[unknown]"] == symbolizer.user(1, [1])
        assert ["[unknown]"] == symbolizer.user(1, [1])
        assert ["[unknown]"] == symbolizer.user(2, [1])
        assert ["[unknown]"] == symbolizer.user(3, [1])
        assert {"died": 3, "banned": 1} == symbolizer.unnamed
        assert ["[unknown]"] == symbolizer.user(4, [1])
        assert 1 == symbolizer.unnamed["unavailable"]
        now[0] += 60
        assert ["[unknown]"] == symbolizer.user(4, [1])
        assert 4 == symbolizer.unnamed["died"]


def test_a_program_that_is_not_there_names_nothing() -> None:
    with Symbolizer(command=("/no/such/program",)) as symbolizer:
        assert ["[unknown]"] == symbolizer.kernel([1])
        assert {"died": 1} == symbolizer.unnamed
