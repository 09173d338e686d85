"""One variant of every event is loaded and attached; what the kernel refuses is remembered with its reason."""

import errno
import subprocess
from pathlib import Path

import pytest

from latencyprobe.errors import AbiMismatch, Unsupported
from latencyprobe_agent.kernel.hooks import KERNEL_BTF, Hooks
from latencyprobe_agent.kernel.loader import Behind, Demands, explain, load
from latencyprobe_agent.vocabulary.records import STRUCTS

pytestmark = pytest.mark.root

EVENTS_H = Path(__file__).parents[2] / "bpf" / "events.h"
GOOD, BROKEN = "return 0;", "return *(volatile int *)(ctx[0] >> 1);"  # what the verifier takes, and what it refuses
PROGRAM = 'SEC("{section}") int {name}(unsigned long long *ctx) {{ {body} }}\n'


@pytest.fixture
def compile_object(tmp_path):
    """Return a function that compiles (name, section, body) programs, with every struct of events.h in their BTF."""

    def compile_(*programs: tuple[str, str, str], events: str = EVENTS_H.read_text()) -> Path:
        (tmp_path / "events.h").write_text(events)
        types = "".join(f"struct {name} *type_{name};\n" for name in STRUCTS)
        source = '#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include "events.h"\n' + types
        source += 'char LICENSE[] SEC("license") = "GPL";\n'
        source += "".join(PROGRAM.format(name=name, section=section, body=body) for name, section, body in programs)
        machine = [f"-I{path}" for path in Path("/usr/include").glob("*-linux-gnu")]
        command = ["clang-19", "-g", "-O2", "-target", "bpf", f"-I{tmp_path}", *machine, "-x", "c", "-c", "-"]
        subprocess.run([*command, "-o", tmp_path / "test.o"], input=source, text=True, check=True)
        return tmp_path / "test.o"

    return compile_


def load_and_close(path, kernel_btf=KERNEL_BTF, left_out=frozenset()):
    with Hooks(kernel_btf) as hooks:
        loaded = load(path, None, hooks, Demands(lambda _: None, left_out=left_out))
    loaded.close()
    return loaded


def test_the_first_variant_that_the_kernel_has_is_used(compile_object):
    path = compile_object(
        ("close__tp_btf", "tp_btf/tcp_destroy_sock", GOOD), ("close__other", "tp_btf/inet_sock_set_state", BROKEN)
    )

    loaded = load_and_close(path)

    assert ({"close": "tp_btf"}, {}) == (loaded.variants, loaded.refused)


def test_an_event_that_is_left_out_is_not_even_loaded(compile_object):
    path = compile_object(
        ("close__tp_btf", "tp_btf/tcp_destroy_sock", GOOD), ("state__tp_btf", "tp_btf/inet_sock_set_state", BROKEN)
    )

    loaded = load_and_close(path, left_out=frozenset({"state"}))

    assert ({"close": "tp_btf"}, {}) == (loaded.variants, loaded.refused)


def test_programs_that_go_on_behind_others_are_of_their_variant_and_not_attached(compile_object):
    path = compile_object(
        ("close__first", "tp_btf/tcp_destroy_sock", GOOD),
        ("close__theirs", "tp_btf/tcp_destroy_sock", GOOD),
        ("state__tp_btf", "tp_btf/inet_sock_set_state", GOOD),
    )
    put, closed = [], []

    class Slot:
        def close(self):
            closed.append(put[-1])

    with Hooks(KERNEL_BTF) as hooks:
        behind = Behind({"close": "theirs"}, lambda program: (put.append(program.name), Slot())[1])
        loaded = load(path, None, hooks, Demands(lambda _: None, behind=behind))
    loaded.close()

    assert {"close": "theirs", "state": "tp_btf"} == loaded.variants
    assert ["close__theirs"] == put == closed


def test_a_variant_without_its_hook_gives_way_to_the_next(compile_object):
    path = compile_object(("close__old", "tp_btf/no_such_event", GOOD), ("close__new", "tp_btf/tcp_destroy_sock", GOOD))

    loaded = load_and_close(path)

    assert {"close": "new"} == loaded.variants
    assert {("close", "old"): "no tracepoint no_such_event"} == loaded.refused


def test_a_variant_that_the_verifier_refuses_gives_way_to_the_next(compile_object):
    path = compile_object(
        ("close__fast", "tp_btf/tcp_destroy_sock", BROKEN),
        ("close__safe", "tp_btf/tcp_destroy_sock", GOOD),
        ("state__only", "tp_btf/inet_sock_set_state", GOOD),
    )

    loaded = load_and_close(path)

    assert {"close": "safe", "state": "only"} == loaded.variants
    assert {("close", "fast"): "verifier: R1 pointer arithmetic with >>= operator prohibited"} == loaded.refused


def test_a_variant_of_several_parts_is_used_whole_or_not_at_all(compile_object):
    path = compile_object(
        ("close__half__known", "tp_btf/tcp_destroy_sock", GOOD),
        ("close__half__unknown", "tp_btf/no_such_event", GOOD),
        ("close__bad__sound", "tp_btf/tcp_destroy_sock", GOOD),
        ("close__bad__broken", "tp_btf/inet_sock_set_state", BROKEN),
        ("close__whole__one", "tp_btf/tcp_destroy_sock", GOOD),
        ("close__whole__two", "tp_btf/inet_sock_set_state", GOOD),
    )

    loaded = load_and_close(path)

    assert {"close": "whole"} == loaded.variants
    assert {("close", "half"), ("close", "bad")} == loaded.refused.keys()
    assert ["close__whole__one", "close__whole__two"] == [program.name for program in loaded.programs]
    assert 2 == len(loaded.links["close"])


def test_an_event_without_any_variant_is_unsupported_with_every_reason(compile_object, capfd):
    path = compile_object(
        ("close__one", "tp_btf/tcp_destroy_sock", BROKEN), ("close__two", "tp_btf/no_such_event", GOOD)
    )

    with pytest.raises(Unsupported, match=r"(?s)`close` .*one: .*two: no tracepoint no_such_event") as caught:
        load_and_close(path)

    assert "KernelUnsupported" == caught.value.reason
    assert ("", "") == capfd.readouterr(), "libbpf's words belong into the error"


@pytest.fixture
def old_btf(tmp_path):
    """Type information of a kernel like this one that gives tracing programs no socket storage."""
    types = KERNEL_BTF.read_bytes()
    (tmp_path / "btf").write_bytes(types.replace(b"bpf_sk_storage_tracing_allowed", b"bpf_sk_storage_tracing_missing"))
    return tmp_path / "btf"


def test_a_kernel_without_socket_storage_gets_the_object_that_does_without(compile_object, old_btf):
    path = compile_object(("close__in_hash", "tp_btf/tcp_destroy_sock", GOOD))
    path.rename(path.with_name("test_hash.o"))
    path = compile_object(("close__in_storage", "tp_btf/tcp_destroy_sock", GOOD))

    assert {"close": "in_hash"} == load_and_close(path, old_btf).variants
    assert {"close": "in_storage"} == load_and_close(path).variants


def test_an_object_that_cannot_do_without_socket_storage_is_unsupported(compile_object, old_btf):
    path = compile_object(("close__in_storage", "tp_btf/tcp_destroy_sock", GOOD))

    with pytest.raises(Unsupported, match=r"no socket storage.*: use Linux 5\.11"):
        load_and_close(path, old_btf)


def test_an_object_with_other_layouts_is_refused(compile_object):
    moved = EVENTS_H.read_text().replace("\t__u32 netns_ino;\n\t__u32 target_set;", "\t__u32 target_set, netns_ino;")
    path = compile_object(("close__one", "tp_btf/tcp_destroy_sock", GOOD), events=moved)

    with pytest.raises(AbiMismatch, match=r"struct exchange .* run `make gen bpf`"):
        load_and_close(path)


def test_a_missing_object_says_how_to_build_it(tmp_path):
    with pytest.raises(Unsupported, match=r"none\.o.*`make bpf`") as caught:
        load_and_close(tmp_path / "none.o")

    assert "ObjectUnreadable" == caught.value.reason


def test_a_low_limit_of_locked_memory_is_named_with_its_remedy():
    libbpf_says = "libbpf: permission error while running as root; try raising 'ulimit -l'? current value: 64.0 KiB"

    assert "raise it (LimitMEMLOCK), or add SYS_RESOURCE" in explain(OSError(errno.EPERM, libbpf_says))
