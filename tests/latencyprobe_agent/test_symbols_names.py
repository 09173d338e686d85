"""Symbols as a person reads them, of the kernel's table and of mangled names."""

from pathlib import Path

import pytest

from latencyprobe_agent.symbols.kallsyms import Kallsyms
from latencyprobe_agent.symbols.messages import NAME_BYTES
from latencyprobe_agent.symbols.names import readable

TABLE = """\
ffffffff81000000 T tcp_retransmit_skb
ffffffffc0000000 T veth_xmit	[veth]
ffffffff81000100 t tcp_retransmit_timer
ffffffff81000180 d tcp_metrics
"""


def test_an_address_belongs_to_the_function_that_starts_before_it(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_text(TABLE)
    kernel = Kallsyms(tmp_path / "kallsyms")
    asked = [0xFFFFFFFF81000000, 0xFFFFFFFF810000FF, 0xFFFFFFFF81000190, 0xFFFFFFFFC0000010, 5]
    expected = ["tcp_retransmit_skb", "tcp_retransmit_skb", "tcp_retransmit_timer", "veth_xmit", None]
    assert expected == [kernel.name(address) for address in asked]
    assert not kernel.hidden


def test_addresses_that_the_kernel_hides_have_no_name(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_text("0000000000000000 T tcp_retransmit_skb\n0000000000000000 t tcp_ack\n")
    kernel = Kallsyms(tmp_path / "kallsyms")
    assert kernel.hidden
    assert kernel.name(0xFFFFFFFF81000000) is None


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (b"nanosleep", "nanosleep"),
        (b"_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int>>::push_back(int&&)"),
        (b"_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
        (b"_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        (b"_Zinvalid", "_Zinvalid"),
        (b"a\x1b[31mred\n", "a\ufffd[31mred\ufffd"),
        (b"\xff", "\ufffd"),
    ],
)
def test_names_are_demangled_and_printable(symbol: bytes, name: str) -> None:
    assert name == readable(symbol)


def test_a_name_is_cut_where_no_compiler_would_write_on() -> None:
    assert "n" * 1000 == readable(b"n" * 1000)
    cut = readable(b"n" * (NAME_BYTES + 1))
    assert (NAME_BYTES, "…") == (len(cut), cut[-1])
