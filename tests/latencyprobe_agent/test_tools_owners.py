"""Processes by the inode of their sockets, in a tree as /proc has it."""

from latencyprobe_agent.tools.owners import Owners


def hold(proc, pid, *targets):
    (proc / str(pid) / "fd").mkdir(parents=True)
    for number, target in enumerate(targets):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)


def test_process_of_a_socket_is_who_holds_its_descriptor(tmp_path):
    hold(tmp_path, 12, "/dev/null", "socket:[701]")
    hold(tmp_path, 13, "socket:[702]", "pipe:[703]")
    (tmp_path / "self").mkdir()
    (tmp_path / "14").mkdir()  # it has ended: no descriptors
    owners = Owners(tmp_path)
    assert {701: 12, 702: 13} == owners.find([701, 702, 703, 0])


def test_what_was_found_is_not_searched_for_again(tmp_path):
    hold(tmp_path, 12, "socket:[701]")
    owners = Owners(tmp_path)
    assert {701: 12} == owners.find([701])
    (tmp_path / "12" / "fd" / "0").unlink()
    assert {701: 12} == owners.find([701])
