"""One node's plan: what has not changed is neither described nor hashed again."""

from typing import Any

import pytest

from latencyprobe import plan_digest


def test_of_a_plan_that_changes_only_what_is_another_one_is_hashed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = make.planned(make.pod("cart-1"), make.pod("web-1"), make.pod("web-2", node="n2"))
    before, hashed, of = planned.planner.plan_of("n1"), [], plan_digest.part_digest
    monkeypatch.setattr(plan_digest, "part_digest", lambda part: hashed.append(part) or of(part))  # type: ignore[func-returns-value]

    planned.state.put("pods", make.pod("web-3"))
    planned.plan(planned.probe)

    after, anew = planned.planner.plan_of("n1"), [*hashed]
    assert after.digest == plan_digest.digest_of(after) != before.digest
    known = {id(part) for part in (*before.targets, *before.pods)}
    new = [part for part in (*after.pods, *after.targets) if id(part) not in known]
    assert len(new) < len(known)
    assert new == anew
