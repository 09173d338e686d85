"""Mounted files: the pairing key, and a certificate that follows them."""

import asyncio
import base64
import ssl
from pathlib import Path

import pytest

from latencyprobe.errors import LatencyProbeError
from latencyprobe_operator.directory.tls import Certificate, follow, pair_key
from tests.support.certificates import make_certificate

KEY = bytes(range(32))


@pytest.mark.parametrize("content", [KEY, base64.b64encode(KEY), base64.b64encode(KEY) + b"\n"])
def test_pair_key_is_raw_or_base64(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    assert pair_key(tmp_path / "key") == KEY


@pytest.mark.parametrize("content", [b"", b"short", bytes(range(200, 233)), base64.b64encode(KEY[:16])])
def test_other_content_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(LatencyProbeError, match="put 32 random bytes there") as refused:
        pair_key(tmp_path / "key")
    assert repr(content)[2:-1] not in str(refused.value) or not content


def test_missing_key_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(LatencyProbeError, match="none: No such file"):
        pair_key(tmp_path / "none")


def test_certificate_is_loaded_again_only_when_its_files_changed(tmp_path: Path) -> None:
    make_certificate(tmp_path, "tls")
    served = Certificate(tmp_path)
    assert served.refresh() is False
    make_certificate(tmp_path, "tls")
    assert served.refresh() is True


def test_key_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    make_certificate(tmp_path, "tls")
    cert = (tmp_path / "tls.crt").read_bytes()
    make_certificate(tmp_path, "tls")
    (tmp_path / "tls.crt").write_bytes(cert)
    with pytest.raises(LatencyProbeError, match=r"not a certificate that fits tls\.key"):
        Certificate(tmp_path)


def test_files_that_are_followed_bring_the_new_certificate_and_key(tmp_path: Path) -> None:
    make_certificate(tmp_path, "tls")
    served, keys = Certificate(tmp_path), list[bytes]()
    for number in range(2):
        (tmp_path / "key").write_bytes(bytes([number]) * 32)
        make_certificate(tmp_path, "tls")
        asyncio.run(follow(served, tmp_path / "key", keys.append))
        assert served.refresh() is False
    assert keys == [bytes(32), b"\x01" * 32]


def test_unusable_key_is_named_and_the_one_in_use_stays(tmp_path: Path) -> None:
    make_certificate(tmp_path, "tls")
    (tmp_path / "key").write_bytes(b"short")
    keys: list[bytes] = []
    with pytest.raises(LatencyProbeError, match="put 32 random bytes there"):
        asyncio.run(follow(Certificate(tmp_path), tmp_path / "key", keys.append))
    assert keys == []


def test_connections_set_aside_no_more_than_a_record_and_carry_long_documents(tls_dir: Path) -> None:
    """10,000 of them: asyncio's own way would take 2.6 GB."""
    document, reserved = bytes(range(256)) * 4096, list[int]()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reserved.append(len(writer.transport._ssl_protocol._ssl_buffer))  # type: ignore[attr-defined]
        writer.write(await reader.readexactly(len(document)))
        await writer.drain()
        writer.close()

    async def scene() -> None:
        trust = ssl.create_default_context(cafile=str(tls_dir / "tls.crt"))
        async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=Certificate(tls_dir).context) as server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            reserved.append(len(writer.transport._ssl_protocol._ssl_buffer))  # type: ignore[attr-defined]
            writer.write(document)
            assert await reader.readexactly(len(document)) == document
            writer.close()
            await writer.wait_closed()

    asyncio.run(scene())
    assert sorted(reserved) == [4 << 10, 256 << 10]  # ours to the API server reads much at once
