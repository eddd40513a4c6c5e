"""What an agent says in a poll: decoded strictly, bounded, its samples verified under its own key. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from evidence.canonical import canonical
from evidence.errors import NotCanonical
from keymgmt.checks import is_nonce, is_str, take
from keymgmt.counters import Violation
from keymgmt.errors import MessageRefused
from keymgmt.limits import Limits
from keymgmt.operations import Ack
from keymgmt.peers import Peer
from keymgmt.samples import Sample, verify_sample


@dataclass(frozen=True, slots=True)
class Poll:
    """One decoded poll."""

    nonce: str
    boot_id: str
    agent_version: str
    acks: tuple[Ack, ...]
    samples: tuple[Sample, ...]
    violations: tuple[Violation, ...]


def read_poll(peer: Peer, body: bytes, limits: Limits) -> Poll:
    """Decode the body of a poll.

    Raises:
        MessageRefused: not of the agreed form, too many of something, or a sample of another end.
        SampleRefused: a sample's signature is not this agent's.
    """
    # 1. Form.
    doc = take(read_json(body), _FIELDS, "poll")
    # 2. Bounds, before anything of it is decoded.
    for name, most in (
        ("acks", limits.acks_per_poll),
        ("samples", limits.samples_per_poll),
        ("violations", limits.violations_per_poll),
    ):
        if len(doc[name]) > most:
            raise MessageRefused(f"poll: more than {most} {name}")
    # 3. Samples are of this agent and carry its signature.
    samples = tuple(own_sample(peer, Sample.from_json(item)) for item in doc["samples"])
    # 4. Acknowledgements can be journalled.
    acks = tuple(_ack(item) for item in doc["acks"])
    violations = tuple(Violation.from_json(item) for item in doc["violations"])
    return Poll(doc["nonce"], doc["boot_id"], doc["agent_version"], acks, samples, violations)


def own_sample(peer: Peer, sample: Sample) -> Sample:
    """The sample, once it is known to be of the agent behind the connection.

    Raises:
        MessageRefused: of another agent, link or end.
        SampleRefused: the signature does not verify.
    """
    if (sample.agent, sample.link, sample.endpoint) != (peer.agent, peer.link, peer.side):
        raise MessageRefused("sample: of another agent, link or end than the certificate's")
    verify_sample(sample, peer.certificate.public_key)
    return sample


def read_json(body: bytes) -> Any:
    """The JSON value of a body. Raises MessageRefused."""
    try:
        return orjson.loads(body)
    except (ValueError, RecursionError):
        raise MessageRefused("not JSON") from None


def _ack(item: Any) -> Ack:
    """An acknowledgement whose result the journal can hold, and the rotation's state around it."""
    ack = Ack.from_json(item)
    if _deeper(ack.result, _DEEPEST):
        raise MessageRefused(f"ack: its result is nested deeper than {_DEEPEST} levels")
    try:
        canonical(dict(ack.result))
    except NotCanonical:
        raise MessageRefused("ack: its result is not canonical JSON") from None
    return ack


def _deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [inner for outer in level for inner in _inside(outer)]
    return any(isinstance(item, (dict, list)) for item in level)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


_DEEPEST: Final = 16  # levels of a result; the read-back of an end, the deepest there is, has five
_FIELDS: Final = {
    "v": lambda v: v == 1 and not isinstance(v, bool),
    "nonce": is_nonce,
    "boot_id": is_str,
    "agent_version": is_str,
    "acks": lambda v: isinstance(v, list),
    "samples": lambda v: isinstance(v, list),
    "violations": lambda v: isinstance(v, list),
}
