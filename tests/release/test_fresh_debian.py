"""A Debian with nothing of ours in it: the wheel and the package are installed there, and measure a real Redis."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from release import deb
from release.source import Release
from tests.release.conftest import ROOT
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(1800)]

RELEASES = ["bookworm", "trixie"]
MIRROR = "http://deb.debian.org/debian"
COMING_ALONG = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
# In mounts of its own, which end with it; network and kernel are this machine's.
INSIDE = """
root=$1
shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
exec env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    chroot "$root" sh -ec "$@"
"""
# $1: the program, $2: a port. Prints the report as JSON.
MEASURE = """
: >/tmp/said # of the measuring before this one, and the shell below it may not have opened it yet when it is read
redis-server --port "$2" --save '' --dir /tmp >/tmp/redis.log 2>&1 &
redis=$!
trap 'kill $redis $probe 2>/dev/null || :' EXIT
failed() { echo "$1" >&2; cat /tmp/said /tmp/redis.log >&2; exit 1; }
"$1" run --port "$2" --threshold 1s --store /tmp/store.db -o json >/tmp/report.json 2>/tmp/said &
probe=$!
tries=0
until grep -q '^measuring' /tmp/said; do
    kill -0 $probe 2>/dev/null || failed 'it ended before it measured'
    tries=$((tries + 1))
    [ $tries -lt 1200 ] || failed 'it does not measure after 2 minutes'
    sleep 0.1
done
timeout 10 sh -c 'until redis-cli -p "$1" ping; do sleep 0.1; done' sh "$2" >/dev/null || failed 'no Redis'
redis-benchmark -p "$2" -t get -n 2000 -c 4 -q >/dev/null || failed 'no load'
kill -INT $probe
wait $probe || failed "it ended with $?"
cat /tmp/report.json
rm /tmp/store.db
"""


class Debian:
    """A root, and commands in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def sh(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a script with its arguments."""
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", INSIDE, "-", self.root]
        return subprocess.run(
            [*command, script, "sh", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )

    def do(self, script: str, *words: str) -> str:
        """Run a script that must succeed; return what it prints."""
        done = self.sh(script, *words)
        assert done.returncode == 0, f"{script}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def events(self, program: str) -> int:
        """Measure 2,000 GETs of redis-benchmark; return how many events the report has."""
        report = json.loads(self.do(MEASURE, program, str(free_port())))
        return max(result["events"] for result in report["results"])


@pytest.fixture(scope="module", params=RELEASES)
def debian(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    """A new root of that release, with Python and Redis, without libbpf."""
    if not shutil.which("debootstrap"):
        pytest.skip("no debootstrap on this machine")
    root = tmp_path_factory.mktemp(request.param) / "root"
    packages = "ca-certificates,python3,python3-venv"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", request.param, root, MIRROR],
        check=True,
        capture_output=True,
    )
    for file in (path for path in COMING_ALONG if Path(path).exists()):
        shutil.copy(file, f"{root}{file}")
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # no package's service is to run
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    shutil.copy(ROOT / "constraints.txt", root / "root")
    made = Debian(root)
    made.do("apt-get update -qq && apt-get install -qq -y --no-install-recommends redis-server redis-tools")
    yield made
    shutil.rmtree(root)


def test_wheel_says_what_is_missing_and_with_libbpf1_it_measures(debian: Debian, built: Path) -> None:
    shutil.copy(built, debian.root / "root")
    debian.do(
        'python3 -m venv /root/env && /root/env/bin/pip install -q -c /root/constraints.txt "$1"', f"/root/{built.name}"
    )

    if debian.sh("dpkg -s libbpf1").returncode:  # minbase has it where its iproute2 needs it
        refused = debian.sh("/root/env/bin/latencyprobe run --port 6379 --duration 1s")
        assert refused.returncode == 1
        assert "install Debian's package libbpf1" in refused.stderr
        debian.do("apt-get install -qq -y --no-install-recommends libbpf1")

    assert "eBPF objects" in debian.do("/root/env/bin/latencyprobe doctor")
    assert debian.events("/root/env/bin/latencyprobe") >= 2000


def test_package_brings_all_that_it_needs_and_goes_without_a_trace(
    debian: Debian, begun: Release, package: Path
) -> None:
    shutil.copy(package, debian.root / "root")
    debian.do('apt-get install -qq -y --no-install-recommends "$1"', f"/root/{package.name}")

    assert debian.do("cd / && latencyprobe --version") == f"latencyprobe {begun.version}\n"
    assert debian.do("kubectl-latencyprobe --version") == f"kubectl latencyprobe {begun.version}\n"
    assert debian.do("dpkg --verify latencyprobe") == ""
    assert debian.events("latencyprobe") >= 2000
    debian.do("apt-get purge -qq -y latencyprobe")
    assert not (debian.root / deb.PREFIX).exists()
    assert not list(debian.root.glob("usr/bin/*latencyprobe"))
