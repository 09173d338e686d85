"""Ask the running kernel which hooks it has and what this process may do, before anything is loaded.

Evidence only: the proof that a hook works is `loader.load()`. Never by the kernel's release number.
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from latencyprobe.errors import Unsupported
from latencyprobe_agent.kernel.libbpf import BTF_KIND_FUNC, BTF_KIND_TYPEDEF, Btf

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
KERNEL_BTF_VARIABLE = "LATENCYPROBE_BTF"
_CAPABILITIES = {"CAP_PERFMON": 38, "CAP_BPF": 39}  # linux/capability.h
_CAP_SYS_PTRACE, _CAP_SYS_ADMIN = 19, 21
_HOST_PID_NAMESPACE = 0xEFFFFFFC  # linux/proc_ns.h: PROC_PID_INIT_INO
_CHUNK_BYTES = 1 << 16


class Hooks(AbstractContextManager["Hooks"]):
    """The hooks that the kernel's BTF and symbol table list. Raises Unsupported for a kernel without BTF."""

    def __init__(self, kernel_btf: Path, kallsyms: Path = Path("/proc/kallsyms")) -> None:
        if not kernel_btf.exists():
            raise Unsupported(
                "KernelBtfMissing",
                f"no kernel type information at {kernel_btf}: use a kernel built with CONFIG_DEBUG_INFO_BTF=y"
                + (f", or correct {KERNEL_BTF_VARIABLE}" if KERNEL_BTF_VARIABLE in os.environ else ""),
            )
        try:
            self._btf = Btf(kernel_btf)
        except OSError as e:
            raise Unsupported("KernelBtfMissing", str(e)) from e
        self._kallsyms = kallsyms

    def __exit__(self, *_: object) -> None:
        self._btf.__exit__()

    @property
    def socket_storage(self) -> bool:
        """Return whether tracing programs may keep data with a socket, as they may from Linux 5.11 on."""
        return self._btf.has("bpf_sk_storage_tracing_allowed", BTF_KIND_FUNC)

    def _has_symbol(self, name: str) -> bool:
        """Look for a symbol of exactly this name, without ever holding the table: it takes 15 MB."""
        symbol, before = f" {name}".encode(), b""
        with self._kallsyms.open("rb") as table:
            while chunk := table.read(_CHUNK_BYTES):
                if any(symbol + end in before + chunk for end in (b"\n", b"\t")):
                    return True
                before = chunk[-len(symbol) - 1 :]
        return before.endswith(symbol)

    def refusal(self, section: str) -> str:
        """Return why a program of this ELF section cannot attach here, empty if nothing speaks against it."""
        kind, _, name = section.partition("/")
        if kind == "tp_btf":
            return "" if self._btf.has(f"btf_trace_{name}", BTF_KIND_TYPEDEF) else f"no tracepoint {name}"
        if kind == "iter":
            return "" if self._btf.has(f"bpf_iter_{name}", BTF_KIND_FUNC) else f"no iterator {name}"
        # an exact symbol: a function renamed to name.isra.0 or inlined away is not there to attach to
        if not self._btf.has(name, BTF_KIND_FUNC) or not self._has_symbol(name):
            return f"no function {name}"
        return ""


def missing_capabilities(status: str) -> list[str]:
    """Return the capabilities that loading needs and this process lacks. `status`: text of /proc/self/status."""
    if _effective(status) >> _CAP_SYS_ADMIN & 1:
        return []
    return [name for name, bit in _CAPABILITIES.items() if not _effective(status) >> bit & 1]


def cannot_look_into_processes(status: str, proc: Path = Path("/proc")) -> str:
    """Return why this process cannot read maps and files of all processes that the kernel numbers, empty if it can."""
    if not _effective(status) >> _CAP_SYS_PTRACE & 1:
        return "CAP_SYS_PTRACE missing"
    return "" if has_the_kernels_numbers(proc) else "a PID namespace of its own"


def has_the_kernels_numbers(proc: Path = Path("/proc")) -> bool:
    """Return whether processes have the kernel's numbers here: in another PID namespace than the host's the same number
    is another process."""
    return (proc / "self" / "ns" / "pid").readlink().name == f"pid:[{_HOST_PID_NAMESPACE}]"


def _effective(status: str) -> int:
    return int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)


def require_capabilities(status: str) -> None:
    """Raise Unsupported, naming the remedy, when a capability is missing."""
    missing = missing_capabilities(status)
    if missing:
        raise Unsupported(
            "MissingCapability",
            f"this process lacks {' and '.join(missing)}: run as root, or add BPF and PERFMON to the container's "
            "securityContext.capabilities",
        )
