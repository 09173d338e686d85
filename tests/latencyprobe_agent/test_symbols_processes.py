"""What a process has mapped, as the kernel's list of its maps tells it."""

import pytest

from latencyprobe_agent.symbols.processes import executable


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("", True),
        ("[anon:Ruby:rb_yjit_reserve_addr_space]", True),
        ("[anon_shmem:jit]", True),
        ("[heap]", True),
        ("/memfd:doublemapper (deleted)", True),
        ("/dev/zero (deleted)", True),
        ("[vdso]", False),
        ("/usr/lib/libc.so.6", False),
        ("/usr/lib/libold.so (deleted)", False),
    ],
)
def test_code_made_at_run_time_is_told_from_files_and_the_kernel_s_page(path: str, made: bool) -> None:
    line = f"5b104e861000-5b104e864000 r-xp 00000000 00:00 0                          {path}\n"
    (mapping,) = executable(line.encode())
    assert (mapping.path, mapping.made_at_run_time) == (path, made)
