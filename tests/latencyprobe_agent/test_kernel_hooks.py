"""What the kernel has, and what a process may do, is asked before anything is loaded."""

from pathlib import Path

import pytest

from latencyprobe.errors import Unsupported
from latencyprobe_agent.kernel.hooks import (
    KERNEL_BTF,
    Hooks,
    cannot_look_into_processes,
    missing_capabilities,
    require_capabilities,
)

needs_btf = pytest.mark.skipif(not KERNEL_BTF.exists(), reason="this kernel has no BTF")


def status(*bits: int) -> str:
    return f"Name:\tpython3\nCapEff:\t{sum(1 << bit for bit in bits):016x}\nSeccomp:\t0\n"


@pytest.mark.parametrize(
    ("bits", "missing"),
    [((38, 39), []), ((21,), []), ((39,), ["CAP_PERFMON"]), ((0, 1), ["CAP_PERFMON", "CAP_BPF"])],
)
def test_capabilities_are_named_that_are_missing(bits, missing):
    assert missing == missing_capabilities(status(*bits))


def test_a_missing_capability_is_unsupported_with_its_remedy():
    with pytest.raises(Unsupported, match=r"CAP_BPF: run as root, or add .*securityContext") as caught:
        require_capabilities(status(38))

    assert "MissingCapability" == caught.value.reason


def test_missing_type_information_names_the_file_and_the_variable_that_chose_it(monkeypatch, tmp_path):
    monkeypatch.setenv("LATENCYPROBE_BTF", "set")

    with pytest.raises(Unsupported, match=r"/none: .*CONFIG_DEBUG_INFO_BTF.*LATENCYPROBE_BTF") as caught:
        Hooks(tmp_path / "none")

    assert "KernelBtfMissing" == caught.value.reason


def test_broken_type_information_is_unsupported(tmp_path):
    (tmp_path / "btf").write_bytes(b"no BTF at all, but long enough to have a header")

    with pytest.raises(Unsupported, match="cannot read BTF"):
        Hooks(tmp_path / "btf")


@needs_btf
@pytest.mark.parametrize(
    ("section", "refusal"),
    [
        ("tp_btf/inet_sock_set_state", ""),
        ("tp_btf/no_such_event", "no tracepoint no_such_event"),
        ("iter/bpf_sk_storage_map", ""),
        ("iter/no_such_thing", "no iterator no_such_thing"),
        ("fentry/tcp_sendmsg_locked", ""),
        ("fentry/no_such_function", "no function no_such_function"),
        ("fexit/tcp_close", "no function tcp_close"),  # in BTF, but only as tcp_close.isra.0 in the symbol table
    ],
)
def test_a_hook_is_refused_when_the_kernel_does_not_name_it(tmp_path, section, refusal):
    symbols = tmp_path / "kallsyms"
    symbols.write_text("0000000000000000 T tcp_sendmsg_locked\n0000000000000000 t tcp_close.isra.0\t[tcp]\n")

    with Hooks(Path(KERNEL_BTF), symbols) as hooks:
        assert refusal == hooks.refusal(section)


@needs_btf
def test_socket_storage_is_there_when_the_kernel_has_the_function_that_allows_it(tmp_path):
    name = b"bpf_sk_storage_tracing_allowed"
    types = KERNEL_BTF.read_bytes()
    (tmp_path / "old").write_bytes(types.replace(name, name[::-1]))

    with Hooks(KERNEL_BTF) as hooks, Hooks(tmp_path / "old") as old:
        assert [name in types, False] == [hooks.socket_storage, old.socket_storage]


@pytest.mark.parametrize(
    ("bits", "namespace", "why"),
    [
        ((19,), 4026531836, ""),
        ((38, 39), 4026531836, "CAP_SYS_PTRACE missing"),
        ((19,), 4026532456, "a PID namespace of its own"),
    ],
)
def test_processes_are_looked_into_by_the_numbers_of_the_host_alone(tmp_path, bits, namespace, why):
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
    assert why == cannot_look_into_processes(status(*bits), tmp_path)
