"""Sends samples to a Prometheus by its remote write, which takes native histograms too.

Source: https://prometheus.io/docs/specs/prw/remote_write_spec/ and prompb/types.proto (version 1); Snappy's format has
literals, so nothing has to be compressed.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import requests

from tests.support.prometheus import Series, Server

FEATURES = ("--web.enable-remote-write-receiver", "--enable-feature=native-histograms")
_SCHEMA = 5  # buckets for each power of two: 2^5


class Histograms(NamedTuple):
    """A native histogram by time: (Unix s, count by index of OTLP)."""

    name: str
    labels: Mapping[str, str]
    samples: Sequence[tuple[float, Mapping[int, int]]]


def write(server: Server, series: Sequence[Series | Histograms]) -> None:
    """Store all samples, which must be later than what is there."""
    times = sorted({at for one in series for at, _ in one.samples})
    by_time = [dict(one.samples) for one in series]
    for i in range(0, len(times), 200):
        some = times[i : i + 200]
        body = b"".join(
            _field(1, _series(one, [(at, values[at]) for at in some if at in values]))
            for one, values in zip(series, by_time, strict=True)
        )
        headers = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        answer = requests.post(f"{server.url}/api/v1/write", data=_snappy(body), headers=headers, timeout=60)
        assert answer.ok, answer.text[:2000]


def _series(one: Series | Histograms, samples: Sequence[tuple[float, object]]) -> bytes:
    labels = sorted({"__name__": one.name, **one.labels}.items())
    body = b"".join(_field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in labels)
    for at, value in samples:
        ms = round(at * 1000)
        if isinstance(value, Mapping):
            body += _field(4, _histogram(ms, value))
        else:
            body += _field(2, _double(1, float(value)) + _varint(2 << 3) + _varint(ms))  # type: ignore[arg-type]
    return body


def _histogram(ms: int, counts: Mapping[int, int]) -> bytes:
    spans, last = b"", 0
    indexes = sorted(counts)
    for index in indexes:
        offset = index + 1 - last  # theirs is one higher than OTLP's
        spans += _field(11, _varint(1 << 3) + _varint(_zigzag(offset)) + _varint(2 << 3) + _varint(1))
        last = index + 2
    values = b"".join(struct.pack("<d", counts[index]) for index in indexes)
    number = _double(2, sum(counts.values())) + _double(3, 1.0) + _varint(4 << 3) + _varint(_zigzag(_SCHEMA))
    zero = _double(5, 1e-9) + _double(7, 0.0)
    return number + zero + spans + _field(13, values) + _varint(15 << 3) + _varint(ms)


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _snappy(body: bytes) -> bytes:
    """The body as literals of at most 65,536 bytes."""
    parts = [body[i : i + 65_536] for i in range(0, len(body), 65_536)]
    return _varint(len(body)) + b"".join(b"\xf4" + struct.pack("<H", len(part) - 1) + part for part in parts)
