"""What is said when a shared store cannot be used; a token, a tenant, a certificate before a real Prometheus."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.shared_store import client as client_
from latencyprobe.shared_store.client import FAILED, Client
from latencyprobe.shared_store.settings import Settings
from tests.support.ports import free_port
from tests.support.programs import needs
from tests.support.prometheus import Server, needs_prometheus, prometheus
from tests.support.servers import encrypted, nginx

NOW = 1_700_000_000
Front = Callable[[str], str]


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    """Starts an nginx with one location; returns its URL."""
    with ExitStack() as stack:

        def run(location: str) -> str:
            folder, port = tmp_path / "front", free_port()
            folder.mkdir()
            stack.enter_context(nginx(folder, port, location))
            return f"http://127.0.0.1:{port}"

        yield run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with prometheus(tmp_path / "server") as found:
        yield found


def problem(settings: Settings, expression: str = "vector(1)") -> str:
    with pytest.raises(StoreError) as raised:
        Client(settings).at(expression, NOW)
    assert raised.value.reason == FAILED
    assert str(raised.value).startswith(f"{settings.url}: ")
    return str(raised.value)


def test_a_server_that_is_not_there_is_told() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    said = f"{url}: no answer: connection refused: is it up, and reached from here under this URL?"
    assert said == problem(Settings(url))


def test_a_name_that_nobody_knows_is_told() -> None:
    said = problem(Settings("http://prometheus.invalid:9090"))
    assert ": no answer: " in said
    assert not [of_a_library for of_a_library in ("HTTP", "Errno", "(") if of_a_library in said], said


def test_a_server_that_never_answers_is_told_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert ": no answer: timed out: " in problem(Settings(url, timeout_s=0.2))


def test_a_server_that_speaks_no_tls_is_told_in_plain_words() -> None:
    def answer(listener: socket.socket) -> None:
        with listener.accept()[0] as asking:
            asking.recv(4096)
            asking.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as plain, ThreadPoolExecutor(1) as pool:
        pool.submit(answer, plain)
        said = problem(Settings(f"https://127.0.0.1:{plain.getsockname()[1]}"))
    assert ": give the authority of its certificate" in said
    assert not [of_a_library for of_a_library in ("[SSL", "_ssl.c") if of_a_library in said], said


@needs("nginx")
@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("return 401;", "401: give it a token or a tenant by LATENCYPROBE_PROMETHEUS_TOKEN_FILE"),
        ("return 403;", "that may read there"),
        ("return 404;", "404: there is no API of Prometheus: give the URL that /api/v1 follows; Mimir's"),
        ("return 302 /login;", "302: it sends on to"),
        ('default_type text/html; return 200 "<html>welcome</html>";', "200 with a web page: give the URL"),
        ('default_type text/plain; return 200 "hello";', "text/plain that is no answer of a Prometheus"),
        ("return 503;", "503: look at the server"),
        ("""return 200 '{"status": "success", "data": {"resultType": "scalar", "result": []}}';""", "without a vector"),
        ("""return 200 '{"status": "error", "error": "too many samples"}';""", "too many samples"),
        (
            """return 200 '{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}';""",
            "a part of its data",
        ),
    ],
)
def test_what_is_no_prometheus_is_told_with_the_remedy(front: Front, location: str, told: str) -> None:
    assert told in problem(Settings(front(location)))


@needs_prometheus
def test_what_the_server_refuses_is_told_in_its_words(server: Server) -> None:
    assert "parse error" in problem(Settings(server.url), "sum(")


@needs_prometheus
def test_a_wrong_path_is_told(server: Server) -> None:
    assert "there is no API of Prometheus" in problem(Settings(f"{server.url}/somewhere"))


@needs_prometheus
def test_an_answer_of_any_length_is_not_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_, "MAX_BYTES", 50)
    assert "longer than" in problem(Settings(server.url))


@needs("nginx")
@needs_prometheus
def test_a_token_and_a_tenant_are_sent_and_a_new_token_is_read(front: Front, server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token_wanted = 'if ($http_authorization != "Bearer secret") { return 401; }'
    tenant_wanted = "if ($http_x_scope_orgid != team) { return 403; }"
    url = front(f"{token_wanted} {tenant_wanted} proxy_pass {server.url};")
    settings = Settings(url, {"X-Scope-OrgID": "team"}, token)
    asked = Client(settings)
    token.write_text("old\n")
    with pytest.raises(StoreError, match="401"):
        asked.at("vector(1)", NOW)
    token.write_text("secret\n")
    assert asked.at("vector(1)", NOW)[0].total == 1
    assert "403" in problem(Settings(url, {}, token))


def test_a_token_file_without_a_token_is_told(tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.write_text("\n")
    assert "No such file" in problem(Settings("http://127.0.0.1:1", token_file=missing))
    assert "holds no token" in problem(Settings("http://127.0.0.1:1", token_file=empty))


@needs("nginx")
@needs_prometheus
def test_a_certificate_is_checked(server: Server, tmp_path: Path) -> None:
    folder, port = tmp_path / "tls", free_port()
    folder.mkdir()
    more = encrypted(folder, port, "TLSv1.3")
    with nginx(folder, port, f"proxy_pass {server.url};", more=more):
        url = f"https://127.0.0.1:{port}"
        assert "give the authority of its certificate by LATENCYPROBE_PROMETHEUS_CA_FILE" in problem(Settings(url))
        trusting = Client(Settings(url, ca_file=folder / "tls.crt"))
        assert trusting.at("vector(1)", NOW)[0].total == 1


def test_a_missing_authority_is_told(tmp_path: Path) -> None:
    assert "no answer" in problem(Settings("https://127.0.0.1:1", ca_file=tmp_path / "none.crt"))
