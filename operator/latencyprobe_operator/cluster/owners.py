"""Whose an object is that the operator has written beside a LatencyProbe, and that it is ours. Pure."""

from collections.abc import Mapping
from typing import Any

from latencyprobe.api import API_VERSION, KIND

MANAGED_BY = {"app.kubernetes.io/managed-by": "latencyprobe-operator"}  # label of what others might have made too


def reference(name: str, uid: str) -> dict[str, str]:
    """Return the owner reference by which an object goes when its last LatencyProbe does: this one's."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid}


def owner(metadata: Mapping[str, Any]) -> str | None:
    """Return the name of the LatencyProbe for which we have written an object; None of one that is not ours, or that
    somebody has taken the label off."""
    if not metadata.get("labels", {}).items() >= MANAGED_BY.items():
        return None
    references = metadata.get("ownerReferences", ())
    return next((r["name"] for r in references if (r["apiVersion"], r["kind"]) == (API_VERSION, KIND)), None)
