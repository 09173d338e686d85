"""Tokens, and who knows whose they are."""

import base64
import json
import time
from typing import Any

from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.directory.auth import NODE_CLAIM, Authenticator, FakeReviewer
from tests.latencyprobe_operator.directory_world import AGENT

AGENTS_ADDRESS = "10.0.0.1"
ON_N1 = Reviewed(AGENT, extra={NODE_CLAIM: ["n1"]})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def token(expires_in_s: float = 3600, **claims: Any) -> str:
    whole = json.dumps({"exp": int(time.time() + expires_in_s), **claims}).encode()
    return f"header.{base64.urlsafe_b64encode(whole).decode().rstrip('=')}.signature"


def token_of(namespace: str, pod: str, uid: str, prefix: str = "") -> str:
    """A token that says it is of a pod, as the kubelet mounts them."""
    return prefix + token(**{"kubernetes.io": {"namespace": namespace, "pod": {"name": pod, "uid": uid}}})


def authenticator(users: dict[str, Reviewed], clock: Clock | None = None) -> tuple[Authenticator, FakeReviewer]:
    reviewer = FakeReviewer(users)
    pods = {("agents", "agent-n2", "uid-2"): "n2", ("monitoring", "prometheus-0", "uid-3"): "n3"}
    pods |= {("evil", f"pod-{i}", f"uid-{i}"): "n4" for i in range(100)}
    nodes = lambda *pod: pods.get(pod, "")  # noqa: E731 - one line
    is_agent = AGENTS_ADDRESS.__eq__
    return Authenticator(reviewer, "agents", "agent", nodes, clock or Clock(), is_agent=is_agent), reviewer
