"""Hostile LatencyProbes before a real API server: 500 on purpose, and 100,000 fuzzed ones (`PROBES=100000` in the
environment; else some thousands), on which our parser's verdict is the API server's."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from latencyprobe import parsing
from latencyprobe.api import API_VERSION
from latencyprobe.errors import SpecError
from tests.support.api_server import ApiServer, api_server
from tests.support.fuzz import seeded
from tests.support.hostile_probes import Document, fuzzed, hostile

pytestmark = pytest.mark.cluster

PATH = f"/apis/{API_VERSION}/namespaces/default/latencyprobes?dryRun=All&fieldValidation="
AT_ONCE = 8
SLICE = 1_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as it:
        yield it


def ours(document: Document) -> list[SpecError]:
    return parsing.problems(document)


def test_hostile_latencyprobes_are_refused_or_pruned_before_anybody_sees_them(server: ApiServer) -> None:
    outcomes: Counter[str] = Counter()
    wrong = []
    for name, document, says in hostile():
        status, answer = server.call("POST", PATH + "Ignore", document)
        strict, message = server.call("POST", PATH + "Strict", document)
        named = says is None or says in str(message)
        outcomes["pruned" if status == 201 else "refused"] += 1
        pruned = says is not None and status == 201 and says not in json.dumps(answer["spec"]) and says not in answer
        if not (pruned or status in (400, 422)) or strict not in (400, 422) or not named or not ours(document):
            wrong.append((name, status, strict, str(message)[:300], ours(document)))
    print(f"{outcomes.total()} hostile LatencyProbes: {dict(outcomes)}")
    assert wrong == []
    assert outcomes.total() >= 500


@pytest.mark.timeout(7200)
def test_parser_and_api_server_give_fuzzed_latencyprobes_the_same_verdict(server: ApiServer) -> None:
    cases, fuzz = seeded("PROBES", 3_000)
    verdicts: Counter[str] = Counter()
    wrong: list[Any] = []

    def compare(document: Document) -> None:
        status, answer = server.call("POST", PATH + "Strict", document)
        problems = ours(document)
        assert status in (201, 400, 422), (status, answer, document)
        verdicts["accepted" if status == 201 else "refused"] += 1
        if (status == 201) == bool(problems):
            wrong.append((problems or "accepted by us", answer if status != 201 else "accepted by it", document))
        lenient, pruned = (status, answer) if status == 201 else server.call("POST", PATH + "Ignore", document)
        if lenient == 201 and (problems := ours({key: pruned[key] for key in document})):  # what the operator gets
            wrong.append((problems, "accepted by it after pruning", document))

    documents = (fuzzed(fuzz) for _ in range(cases))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while some := list(islice(documents, SLICE)):
            list(pool.map(compare, some))
    print(f"{dict(verdicts)}, {len(wrong)} on which both differ")
    assert wrong == []
    assert min(verdicts["accepted"], verdicts["refused"]) > cases // 20
