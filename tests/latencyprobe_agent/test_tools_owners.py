"""Processes by the inode of their sockets, in a tree as /proc has it."""

import pytest

from latencyprobe_agent.tools.owners import Owners

HOST, OTHER = 4026531836, 4026532456  # PID namespaces


@pytest.fixture(autouse=True)
def namespace(tmp_path):
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to(f"pid:[{HOST}]")
    return tmp_path / "self" / "ns" / "pid"


def hold(proc, pid, *targets):
    (proc / str(pid) / "fd").mkdir(parents=True)
    for number, target in enumerate(targets):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)


def test_process_of_a_socket_is_who_holds_its_descriptor(tmp_path):
    hold(tmp_path, 12, "/dev/null", "socket:[701]")
    hold(tmp_path, 13, "socket:[702]", "pipe:[703]")
    (tmp_path / "14").mkdir()  # it has ended: no descriptors
    owners = Owners(tmp_path)
    assert {701: 12, 702: 13} == owners.find([701, 702, 703, 0])


def test_what_was_found_is_not_searched_for_again(tmp_path):
    hold(tmp_path, 12, "socket:[701]")
    owners = Owners(tmp_path)
    assert {701: 12} == owners.find([701])
    (tmp_path / "12" / "fd" / "0").unlink()
    assert {701: 12} == owners.find([701])


def test_no_process_is_named_by_the_number_that_it_has_in_a_namespace_of_ours(tmp_path, namespace):
    namespace.unlink()
    namespace.symlink_to(f"pid:[{OTHER}]")
    hold(tmp_path, 12, "socket:[701]")
    assert {} == Owners(tmp_path).find([701])
