"""Names of frames: where in which file, of a process that lives; and of one that does not."""

from latencyprobe_agent.tools.frames import Frames

MAPS = """\
55550000-55560000 r-xp 00001000 08:01 7 /usr/bin/a program
7f000000-7f001000 rw-p 00000000 00:00 0
7f100000-7f101000 r-xp 00000000 08:01 9 /tmp/\x1b[2Jlib.so (deleted)
"""


def test_an_address_is_a_place_in_a_mapped_file(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "maps").write_text(MAPS)
    names = Frames(tmp_path).user(7, [0x55550010, 0x7F000008, 0x7F100001, 0x1])
    assert ["a program+0x1010", "[anonymous]+0x8", "?[2Jlib.so (deleted)+0x1", "[unknown]"] == names


def test_of_a_process_that_has_ended_nothing_is_known(tmp_path):
    assert ["[unknown]"] * 2 == Frames(tmp_path).user(7, [1, 2])


def test_the_kernels_functions_have_names(tmp_path):
    (tmp_path / "kallsyms").write_text("0000000000001000 T first\n0000000000002000 t second\n")
    assert ["first", "second"] == Frames(tmp_path).kernel([0x1010, 0x2000])
