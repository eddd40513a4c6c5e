"""The wire: admission.k8s.io/v1 AdmissionReview in, AdmissionReview out.

Decides what is a review at all, and puts answers together. An audit event keeps the first value of an
annotation's key, and one event can gather many reviews, so keys carry the head of the review's uid. Limits of
the API server: it may cut a warning over 256 characters, and drops what exceeds 4,096 characters of warnings
in all, so they are cut here, where the most important ones come first.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from policy_engine.errors import BadReview
from policy_engine.limits import LIMITS

OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
API_VERSION: Final = "admission.k8s.io/v1"

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_KEY_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]")
_HEAD: Final = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":'
# How an API server's reviews begin: only texts before `request`, and `uid` as its first field.
_BEGIN: Final = re.compile(
    rb'\s*\{(?:\s*"[A-Za-z]{1,32}"\s*:\s*"[!#-\[\]-~]{0,64}"\s*,){0,4}'
    rb'\s*"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z._:-]{1,253})"'
)
_BEGIN_OCTETS: Final = 1024
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Review(NamedTuple):
    """One review that can be answered, because its uid is known. Fields of the wrong type are empty."""

    uid: str
    operation: str
    namespace: str
    group: str
    kind: str
    subresource: str
    request: dict[str, Any]


def parse(body: bytes | bytearray) -> Review:
    """Decode and check a review. Duplicate keys: the last wins, as in the API server's own decoder.

    Raises:
        BadReview: No review; carries the uid where one could be read.
    """
    try:
        document = _decode(body)
    except RecursionError:
        raise _no_review("the body is nested too deeply", uid_at_begin(body)) from None
    except msgspec.ValidationError:  # all that a decoder without a type can object to in good JSON
        raise _no_review("the body holds a number that is out of range", uid_at_begin(body)) from None
    except (msgspec.MsgspecError, ValueError):
        # The decoder's text may quote the body: it is dropped on purpose.
        raise _no_review("the body is not JSON in UTF-8", uid_at_begin(body)) from None
    if not isinstance(document, dict):
        raise BadReview("the body is not an AdmissionReview")
    request = document.get("request")
    if not isinstance(request, dict):
        raise BadReview("the body is not an AdmissionReview with a request")
    uid = request.get("uid")
    if not isinstance(uid, str) or len(uid) > LIMITS.review_uid_chars:
        uid = ""
    if document.get("kind") != "AdmissionReview":
        raise _no_review("the body is not an AdmissionReview with a request", uid)
    if not uid:
        raise BadReview("request.uid is missing or too long")
    if document.get("apiVersion") != API_VERSION:
        raise BadReview(f"only {API_VERSION} is served", uid=uid)
    return _review(uid, request)


def uid_at_begin(body: bytes | bytearray) -> str:
    """The uid of a body that cannot be decoded, to be echoed and nothing else; "" where it does not show.

    Bounded: looks at the first octets, and only for the form in which an API server writes a review.
    """
    found = _BEGIN.match(body[:_BEGIN_OCTETS])
    return found[1].decode("ascii") if found else ""


def _no_review(why: str, uid: str) -> BadReview:
    return BadReview(why, uid=uid, status=400)


def _review(uid: str, request: dict[str, Any]) -> Review:
    """The few fields that routing needs. What is wrong with the rest is for facts to say (and to record)."""
    operation, kind = request.get("operation"), request.get("kind")
    return Review(
        uid,
        operation if isinstance(operation, str) and operation in OPERATIONS else "",
        _text(request, "namespace"),
        _text(kind, "group"),
        _text(kind, "kind"),
        _text(request, "subResource"),
        request,
    )


def _text(holder: Any, name: str) -> str:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""


def annotation_suffix(uid: str) -> str:
    """The first eight characters of a uid that are lawful in an annotation key."""
    head = uid[:8]
    return head if head.isalnum() and head.isascii() else _KEY_UNSAFE.sub("", head) or "0"


def cut_warnings(texts: Sequence[str]) -> list[str]:
    """Warnings as the API server will pass them on, most important first."""
    out: list[str] = []
    room = LIMITS.warnings_chars
    for text in texts:
        line = _printable(text)[: LIMITS.warning_chars]
        if len(line) > room:
            break
        room -= len(line)
        out.append(line)
    return out


def _printable(text: str) -> str:
    # A Warning header (RFC 7234 5.5) has no room for control characters.
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def answer(
    uid: str,
    allowed: bool,
    *,
    code: int = 0,
    message: str = "",
    warnings: Sequence[str] = (),
    annotations: bytes = b"",
) -> bytes:
    """The bytes of a response.

    Args:
        uid: Of the review; empty when it could not be read.
        allowed: The verdict.
        code: HTTP-like status code of a refusal.
        message: What the user reads: which rule, which field, how to fix it.
        warnings: Already cut.
        annotations: JSON object of audit annotations, or nothing.
    """
    parts = [_HEAD, _encode(uid), b',"allowed":true' if allowed else b',"allowed":false']
    if code:
        parts.append(b',"status":')
        parts.append(
            _encode(
                {
                    "status": "Failure",
                    "code": code,
                    "reason": _REASONS.get(code, "InternalError"),
                    "message": message[: LIMITS.denial_chars],
                }
            )
        )
    if warnings:
        parts += (b',"warnings":', _encode(warnings))
    if annotations:
        parts += (b',"auditAnnotations":', annotations)
    parts.append(b"}}")
    return b"".join(parts)


def annotations(uid: str, decision_id: str, policy_digest: str, leaf_hash: str) -> bytes:
    """Audit annotations of one decision; every value is hex, so nothing needs escaping."""
    suffix = annotation_suffix(uid)
    return (
        f'{{"decision.{suffix}":"{decision_id}","leaf.{suffix}":"{leaf_hash}",'
        f'"policy_digest.{suffix}":"{policy_digest}"}}'
    ).encode("ascii")
