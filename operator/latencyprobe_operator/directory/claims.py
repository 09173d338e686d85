"""What a token says of itself. Nobody has vouched for it: only the API server knows whether it is true. Pure."""

import base64

import msgspec

from latencyprobe.wire import UNREADABLE


class PodClaim(msgspec.Struct, frozen=True):
    """The pod that a token is bound to."""

    name: str = ""
    uid: str = ""


class Kubernetes(msgspec.Struct, frozen=True):
    """The claim `kubernetes.io` of a service account's token."""

    namespace: str = ""
    pod: PodClaim = PodClaim()


class Claims(msgspec.Struct, frozen=True):
    """The payload of a JSON Web Token (RFC 7519). `exp`: its end, Unix s."""

    exp: float = 0.0
    kubernetes: Kubernetes = msgspec.field(name="kubernetes.io", default=Kubernetes())


NONE = Claims()


def claims(token: str) -> Claims:
    """Return what a token says; nothing if it is no such token."""
    try:
        payload = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=Claims)
    except (IndexError, ValueError, *UNREADABLE):
        return NONE
