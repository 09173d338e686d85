"""Real servers as children of a test: each in the foreground, on a port and with files of its own, ended by its id."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.certificates import make_certificate
from tests.support.ports import free_port
from tests.support.waiting import wait_until


@contextmanager
def running(
    *words: object, port: int, env: Mapping[str, str] | None = None, timeout_s: float = 60, log: Path = Path(os.devnull)
) -> Iterator[None]:
    """A server process of our own, once it listens. `log`: what it says."""
    with log.open("wb") as output:
        server = subprocess.Popen([str(word) for word in words], stdout=output, stderr=output, env=env)

    def ready() -> bool:
        assert server.poll() is None, f"{words[0]} has ended: {server.returncode}\n{log.read_text()[-2000:]}"
        return listens(port)

    try:
        wait_until(ready, f"{words[0]} listens", timeout_s)
        yield
    finally:
        server.terminate()
        server.wait(timeout_s)


def listens(port: int) -> bool:
    return bool(subprocess.check_output(["ss", "-Hltn", f"sport = :{port}"]))


def version(*words: object) -> str:
    """The first version number that a program tells of itself."""
    told = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True)
    found = re.search(r"\d+(\.\d+)+", told.stdout + told.stderr)
    assert found, told
    return found[0]


@contextmanager
def nginx(folder: Path, port: int, location: str, *, more: str = "") -> Iterator[None]:
    """An nginx of one process with one location, which logs each request to `access.log`; `more`: for its server."""
    folders = " ".join(f"{name}_temp_path {folder};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""
        daemon off; master_process off; pid {folder}/pid; error_log stderr;
        events {{ worker_connections 64; }}
        http {{
            access_log {folder}/access.log; keepalive_requests 1000000; {folders}
            server {{ {more or f"listen {port};"} location / {{ {location} }} }}
        }}
    """)
    with running("nginx", "-e", "stderr", "-c", folder / "nginx.conf", port=port):
        yield


def encrypted(folder: Path, port: int, protocol: str, *, tickets: bool = True) -> str:
    """For nginx: a server with TLS of one version. Its certificate is `tls.crt`."""
    certificate, key = make_certificate(folder, "tls")
    none = "" if tickets else "ssl_session_tickets off; ssl_conf_command NumTickets 0;"
    return (
        f"listen {port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols {protocol}; {none}"
    )


@contextmanager
def redis(folder: Path, port: int, *options: object) -> Iterator[None]:
    """A Redis that keeps nothing."""
    folder.mkdir(exist_ok=True)
    plain = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder)
    with running("redis-server", "--port", port, *plain, *options, port=port):
        yield


@contextmanager
def memcached(port: int) -> Iterator[None]:
    with running("memcached", "-u", "root", "-U", "0", "-l", "127.0.0.1", "-p", port, port=port):
        yield


@contextmanager
def mariadb(folder: Path, port: int) -> Iterator[None]:
    """A MariaDB that lets everybody in."""
    data = folder / "data"
    data.mkdir()
    where = (f"--datadir={data}", f"--socket={folder}/socket", "--bind-address=127.0.0.1", f"--port={port}")
    quick = ("--skip-grant-tables", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0")
    # --skip-grant-tables leaves TCP to --skip-networking, which is to stay off
    with running("mariadbd", "--no-defaults", "--user=root", *where, *quick, "--skip-networking=0", port=port):
        yield


@contextmanager
def postgres(port: int, *options: object, under: Sequence[object] = ()) -> Iterator[None]:
    """A PostgreSQL that trusts everybody on loopback, replication included. `options`: of `postgres`; `under`: the
    beginning of a command that starts another one."""
    programs = postgres_programs()
    folder = Path(tempfile.mkdtemp(prefix="lp-postgres-"))  # pytest's folders are closed to other users
    shutil.chown(folder, "postgres")
    whose = ("--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--pdeathsig", "KILL")
    as_postgres = ("setpriv", *whose, "env", f"HOME={folder}")
    try:
        initdb = [*as_postgres, programs / "initdb", "-D", folder / "data", "-A", "trust", "-N"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
        quick = ("-c", "fsync=off", "-c", "autovacuum=off")
        server = (programs / "postgres", "-D", folder / "data", "-k", folder, "-p", port, *quick, *options)
        with running(*under, *as_postgres, *server, port=port):
            ready = pg(port, "pg_isready")
            wait_until(lambda: subprocess.run(ready, check=False, capture_output=True).returncode == 0, "ready")
            yield
    finally:
        shutil.rmtree(folder)


def postgres_programs() -> Path:
    return max(Path("/usr/lib/postgresql").glob("*/bin"))


def pg(port: int, program: str, *words: str) -> list[str]:
    """The command of a client of PostgreSQL."""
    plain = ["env", "PGSSLMODE=disable", "PGGSSENCMODE=disable"]  # each would ask for encryption in a turn of its own
    return [*plain, program, "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", *words]


@contextmanager
def mosquitto(folder: Path, port: int) -> Iterator[None]:
    """An MQTT broker that lets everybody in."""
    configuration = folder / "mosquitto.conf"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nuser root\n")
    with running("mosquitto", "-c", configuration, port=port):
        yield


@contextmanager
def nats(port: int) -> Iterator[None]:
    with running("nats-server", "-a", "127.0.0.1", "-p", port, port=port):
        yield


@contextmanager
def rabbitmq(folder: Path, port: int) -> Iterator[None]:
    """A RabbitMQ without plugins, and Erlang's port mapper, which it would leave behind if it had to start it."""
    epmd_port = free_port()
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"latencyprobe{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
    }
    with ExitStack() as stack:
        stack.enter_context(running("epmd", "-port", epmd_port, "-address", "127.0.0.1", port=epmd_port))
        server = "/usr/lib/rabbitmq/bin/rabbitmq-server"
        stack.enter_context(running(server, port=port, env=env, timeout_s=60))
        yield


@contextmanager
def haproxy(folder: Path, port: int, behind: int, *, options: str = "") -> Iterator[None]:
    """An HAProxy for HTTP in front of a server. `options`: lines of its back end."""
    configuration = folder / "haproxy.cfg"
    configuration.write_text(f"""
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend front
    bind 127.0.0.1:{port}
    default_backend back
backend back
    {options}
    server one 127.0.0.1:{behind} check inter 300ms
""")
    with running("haproxy", "-db", "-f", configuration, port=port):
        yield
