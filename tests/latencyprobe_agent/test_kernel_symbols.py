"""Names of kernel addresses, from a table as /proc/kallsyms shows it."""

from latencyprobe_agent.kernel.symbols import KernelSymbols

TABLE = """\
ffffffff81000000 T tcp_retransmit_skb
ffffffff81000100 t tcp_retransmit_timer
ffffffff81000180 d tcp_metrics
ffffffffc0000000 T veth_xmit	[veth]
"""


def test_an_address_belongs_to_the_function_that_starts_before_it(tmp_path):
    (tmp_path / "kallsyms").write_text(TABLE)
    symbols = KernelSymbols(tmp_path / "kallsyms")
    addresses = [0xFFFFFFFF81000000, 0xFFFFFFFF810000FF, 0xFFFFFFFF81000190, 0xFFFFFFFFC0000010, 0, 0xFFFFFFFF81000000]
    assert ["tcp_retransmit_skb", "tcp_retransmit_skb", "tcp_retransmit_timer", "veth_xmit"] == symbols.names(addresses)


def test_addresses_that_the_kernel_hides_have_no_name(tmp_path):
    (tmp_path / "kallsyms").write_text("0000000000000000 T tcp_retransmit_skb\n0000000000000000 t tcp_ack\n")
    assert ["[unknown]"] == KernelSymbols(tmp_path / "kallsyms").names([0xFFFFFFFF81000000])
