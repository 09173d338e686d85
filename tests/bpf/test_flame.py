"""`latencyprobe flame` while programs wait: whose frames, for how long, and that it adds up."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from latencyprobe_agent.flame.reading import read
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

NAMED = "lp-flame"  # the thread's name, by that of the program
SOURCE = r"""
#include <stdio.h>
#include <time.h>

__attribute__((noinline)) int doze(int depth)
{
	struct timespec t = {0, 40000000}, from, to;

	if (depth)
		return doze(depth - 1) + 1;
	clock_gettime(CLOCK_MONOTONIC, &from);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%ld\n", (to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec);
	return 0;
}

int main(void)
{
	int n = 0;
	char byte;

	while (fread(&byte, 1, 1, stdin) == 1 && n++ < 1000) {
		doze(n % 3);
		fflush(stdout);
	}
	return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flame")
    (folder / "flame.c").write_text(SOURCE)
    flags = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
    subprocess.run(["cc", *flags, "-o", folder / NAMED, folder / "flame.c"], check=True)
    return folder / NAMED


@contextmanager
def flame(*words: str, said: Path) -> Iterator[subprocess.Popen[str]]:
    """The tool, once it has attached."""
    command = [Path(sys.executable).with_name("latencyprobe"), "flame", *words]
    with said.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as tool:
        try:
            wait_until(lambda: "attached" in said.read_text() or tool.poll() is not None, "it has attached", 60)
            yield tool
        finally:
            tool.kill()


def test_a_live_graph_has_the_programs_and_the_kernels_functions_and_adds_up(program: Path, tmp_path: Path) -> None:
    """The sleeps' own stamps, taken around each call, bracket the sum from above; what was asked for from below."""
    said = tmp_path / "said"
    with (
        subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sleeping,
        flame("--pid", str(sleeping.pid), said=said) as tool,
    ):
        assert sleeping.stdin is not None
        assert sleeping.stdout is not None
        assert tool.stdout is not None
        logged = []
        for _ in range(12):
            sleeping.stdin.write(".")
            sleeping.stdin.flush()
            logged.append(int(sleeping.stdout.readline()))
        time.sleep(0.5)  # the last call's stacks are read while the program is there
        tool.terminate()
        text = tool.stdout.read()
        assert 0 == tool.wait()
        sleeping.stdin.close()
    folded, missing = read(text.splitlines())
    assert not missing
    sleeps = {stack: ns for stack, ns in folded.items() if "clock_nanosleep" in stack}
    total = sum(sleeps.values())
    print(f"{len(logged)} sleeps, {total} ns in {len(sleeps)} stacks; {sum(logged)} by their own stamps")
    assert 12 * 40_000_000 <= total <= sum(logged)
    assert "not reported: none" in said.read_text()
    depths = set()
    for stack in sleeps:
        border = stack.index("-")
        assert f"[{NAMED}]" == stack[0]
        assert "main" in stack[:border]
        depths.add(stack[:border].count("doze"))
        if stack[-1] != "[oncpu]":
            kernel = [frame for frame in stack[border + 1 :] if "nanosleep" in frame]
            assert ["__x64_sys_clock_nanosleep", "hrtimer_nanosleep"] == kernel[:2] or os.uname().machine != "x86_64"
    assert {0, 1, 2} == depths, "the C library has no frame pointers: who calls it is not seen, all above are"


def test_a_page_tells_of_what_it_is_and_an_empty_one_what_to_try(tmp_path: Path) -> None:
    said, page = tmp_path / "said", tmp_path / "flame.html"
    words = ("--comm", "no-such-thread", "--duration", "500ms", "-o", "html", "--output-file", str(page))
    with flame(*words, said=said) as tool:
        assert 0 == tool.wait()
    assert "No slow system calls · no-such-thread" in page.read_text()
    assert "Look for longer (--duration)" in said.read_text()
