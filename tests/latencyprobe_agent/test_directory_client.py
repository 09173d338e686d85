import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import AgentStatus, NodePlan
from latencyprobe.plan_stream import PlanLine
from latencyprobe.sli import SliAnswer, SliBatch
from latencyprobe_agent.directory import client
from latencyprobe_agent.directory.client import Directory, DocumentError
from tests.support.waiting import wait_until

PLAN = NodePlan("n1", 7, "digest", (), (), pair_key=b"k" * 32)


@pytest.fixture
def directory(directory_server: Any, tls_files: tuple[Path, Path, Path], token_file: Path) -> Directory:
    return Directory(directory_server.url, "n1", token_file=token_file, ca_file=tls_files[0])


def test_plans_and_heartbeats_arrive_line_by_line(directory_server: Any, directory: Directory) -> None:
    plan, heartbeat = msgspec.json.encode(PlanLine(PLAN)) + b"\n", b"{}\n"
    directory_server.plan_lines = [heartbeat, plan[:20], plan[20:] + heartbeat]
    stream = directory.plans()
    assert [PlanLine(), PlanLine(PLAN), PlanLine()] == [next(stream) for _ in range(3)]
    stream.close()  # type: ignore[attr-defined]  # a generator behind the Iterator


def test_a_plan_that_is_too_long_is_refused_before_its_end(
    directory_server: Any, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_BODY_BYTES", 8192)
    directory_server.plan_lines = [b"{}\n", *[b"a" * 4096] * 3]
    stream = directory.plans()
    assert next(stream) == PlanLine()
    with pytest.raises(DirectoryError, match="a plan is refused: a line of more than 8,192 bytes"):
        next(stream)


def test_the_token_is_read_again_for_each_request(
    directory_server: Any, directory: Directory, token_file: Path
) -> None:
    directory_server.answers["/v1/identities"] = (200, {"identities": [], "generation": 1})
    directory.identities(("10.0.0.1",))
    token_file.write_text("token-2")
    directory.identities(("10.0.0.1",))
    assert [request[1] for request in directory_server.requests] == ["Bearer token-1", "Bearer token-2"]


def test_identities_are_asked_in_one_document(directory_server: Any, directory: Directory) -> None:
    identity = {"address": "10.0.0.1", "namespace": "shop", "service": "cart", "measured": ["shop/p/cart"]}
    directory_server.answers["/v1/identities"] = (200, {"identities": [identity], "generation": 3})
    answer = directory.identities(("10.0.0.1", "10.0.0.2"))
    assert directory_server.requests[0][2] == {"addresses": ["10.0.0.1", "10.0.0.2"]}
    assert (answer.identities[0].service, answer.generation, answer.valid_s) == ("cart", 3, 15.0)


def test_an_answer_that_is_no_text_is_told(directory_server: Any, directory: Directory) -> None:
    directory_server.broken = (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 32\r\n\r\n" + b'{"identities":[{"address":"\xff"}]}'
    )
    with pytest.raises(DirectoryError, match="not a IdentityAnswer"):
        directory.identities(("10.0.0.1",))
    directory_server.broken = (
        b"HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 13\r\n\r\n" + b'{"error":"\xff"}'
    )
    with pytest.raises(DirectoryError, match=r"401: .*audience"):
        directory.identities(("10.0.0.1",))


def test_a_gap_is_answered_with_the_expected_number(directory_server: Any, directory: Directory) -> None:
    directory_server.answers["/v1/nodes/n1/sli"] = (409, {"expected": 4})
    assert directory.sli(SliBatch("i", 9, ())).expected == 4


@pytest.mark.parametrize(
    ("status", "says"), [(401, "too old: .*audience"), (403, "too old: .*on this node"), (503, "too old$")]
)
def test_a_refusal_says_why_and_what_to_do(directory_server: Any, directory: Directory, status: int, says: str) -> None:
    directory_server.answers["/v1/nodes/n1/status"] = (status, {"error": "too old"})
    with pytest.raises(DirectoryError, match=f"{status}: {says}") as refused:
        directory.status(AgentStatus("i", "b", "0", 0, {}, "", (), {}))
    assert "token-1" not in str(refused.value)


@pytest.mark.parametrize("part", [b"", b'{"error": "no such'], ids=["no body", "part of the body"])
@pytest.mark.parametrize("ask", ["post", "stream"])
def test_a_refusal_that_breaks_off_is_a_refusal(
    directory_server: Any, directory: Directory, part: bytes, ask: str
) -> None:
    directory_server.broken = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 60\r\n\r\n" + part
    with pytest.raises(DirectoryError, match="503: Service Unavailable"):
        directory.sli(SliBatch("i", 1, ())) if ask == "post" else next(directory.plans())


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (503, "40", 40.0),
        (429, " 7 ", 7.0),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        (503, "-3", 0.0),
        (500, "9", 0),
    ],
)
def test_a_busy_directory_says_for_how_long(
    directory_server: Any, directory: Directory, status: int, header: str, seconds: float
) -> None:
    directory_server.headers = {"Retry-After": header}
    directory_server.answers["/v1/nodes/n1/sli"] = (status, {"error": "busy"})
    with pytest.raises(DirectoryError) as busy:
        directory.sli(SliBatch("i", 1, ()))
    assert seconds == busy.value.retry_after_s


def test_an_answer_says_when_the_next_rows_are_wanted(directory_server: Any, directory: Directory) -> None:
    directory_server.answers["/v1/nodes/n1/sli"] = (200, {"expected": 2, "next_upload_s": 60})
    assert SliAnswer(2, 60.0) == directory.sli(SliBatch("i", 1, ()))


def test_a_document_that_is_refused_is_told_from_a_directory_that_is_away(
    directory_server: Any, directory: Directory
) -> None:
    directory_server.answers["/v1/nodes/n1/sli"] = (400, "rows[0].minute: in the future")
    with pytest.raises(DocumentError, match="in the future"):
        directory.sli(SliBatch("i", 1, ()))


def test_counts_of_another_version_are_kept_and_every_request_names_its_own(
    directory_server: Any, directory: Directory
) -> None:
    directory_server.answers["/v1/nodes/n1/sli"] = (426, {"error": "upgrade the older of both"})
    with pytest.raises(DirectoryError, match="upgrade the older of both") as refused:
        directory.sli(SliBatch("i", 1, ()))
    assert not isinstance(refused.value, DocumentError)
    assert directory_server.versions == ["1"]


def test_what_a_newer_operator_says_more_is_left_out(directory_server: Any, directory: Directory) -> None:
    line = {"plan": msgspec.to_builtins(PLAN) | {"mood": {"good": 1}}, "mood": 2}
    directory_server.plan_lines = [msgspec.json.encode(line) + b"\n"]
    assert PlanLine(PLAN) == next(directory.plans())


def test_a_stranger_s_certificate_is_refused(
    directory_server: Any, tls_files: tuple[Path, Path, Path], token_file: Path
) -> None:
    directory = Directory(directory_server.url, "n1", token_file=token_file, ca_file=tls_files[2])
    with pytest.raises(DirectoryError, match=r"TLS failed.*stranger\.crt"):
        directory.identities(("10.0.0.1",))
    assert directory_server.requests == []


def test_a_changed_ca_file_is_taken_without_a_restart(
    directory_server: Any, tls_files: tuple[Path, Path, Path], token_file: Path, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.crt"
    shutil.copy(tls_files[2], ca_file)
    directory = Directory(directory_server.url, "n1", token_file=token_file, ca_file=ca_file)
    directory_server.answers["/v1/identities"] = (200, {"identities": [], "generation": 1})
    with pytest.raises(DirectoryError):
        directory.identities(())
    ca_file.unlink()
    shutil.copy(tls_files[0], ca_file)
    directory.identities(())


def test_missing_files_are_named(directory_server: Any, tls_files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(DirectoryError, match=r"missing.*service account token"):
        Directory(directory_server.url, "n1", token_file=missing, ca_file=tls_files[0]).identities(())
    (tmp_path / "token").write_text("t")
    with pytest.raises(DirectoryError, match=r"missing.*CA"):
        Directory(directory_server.url, "n1", token_file=tmp_path / "token", ca_file=missing).identities(())


def test_an_unreachable_directory_is_named(tls_files: tuple[Path, Path, Path], token_file: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"https://localhost:{unused.getsockname()[1]}"
        with pytest.raises(DirectoryError, match=f"{url}: unreachable: .*refused"):
            Directory(url, "n1", token_file=token_file, ca_file=tls_files[0]).identities(())


def test_posts_of_all_threads_share_one_connection(
    directory_server: Any, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_TURN_S", 60.0)
    directory_server.answers["/v1/identities"] = (200, {"identities": [], "generation": 1})
    connections: list[object] = []
    take = directory_server.process_request

    def count(request: object, address: object) -> None:
        connections.append(address)
        take(request, address)

    directory_server.process_request = count
    threads = [threading.Thread(target=directory.identities, args=(("10.0.0.1",),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(directory_server.requests), len(connections)) == (8, 1)


def test_post_does_not_wait_long_for_another_that_hangs(
    directory_server: Any, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_TURN_S", 0.01)
    over = threading.Event()

    def hang(_: object) -> dict[str, int]:
        over.wait(30)
        return {"expected": 2}

    directory_server.answers["/v1/nodes/n1/sli"] = (200, hang)
    directory_server.answers["/v1/nodes/n1/status"] = (200, {})
    slow = threading.Thread(target=directory.sli, args=(SliBatch("i", 1, ()),))
    slow.start()
    wait_until(lambda: directory_server.requests, "the upload is under way")
    directory.status(AgentStatus("i", "b", "0", 0, {}, "", (), {}))
    assert slow.is_alive()
    over.set()
    slow.join()
