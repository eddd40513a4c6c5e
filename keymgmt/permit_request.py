"""What an agent says when it asks the gate for a permit, and who answers (rotation.md section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from keymgmt.checks import Check, is_bool, is_count, is_map, is_nonce, is_str, take
from keymgmt.samples import Sample


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """What an agent says when it asks; `agent` comes from its certificate, never from the body.

    Attributes:
        last_order: the highest (epoch, seq) the agent has accepted.
        violation_generation: counts the violations this end has confirmed, monotone over restarts.
        closed: whether the agent stands under a persisted close order.
        sample: its newest signed sample.
    """

    agent: str
    link: str
    endpoint: str
    nonce: str
    boot_id: str
    secy_id: str
    last_order: tuple[int, int]
    violation_generation: int
    closed: bool
    sample: Sample

    def to_json(self) -> dict[str, Any]:
        """Return the body of `POST /agent/v1/permit` (without `agent`)."""
        return {
            "v": 1,
            "nonce": self.nonce,
            "boot_id": self.boot_id,
            "link": self.link,
            "endpoint": self.endpoint,
            "secy_id": self.secy_id,
            "last_order": list(self.last_order),
            "violation_generation": self.violation_generation,
            "closed": self.closed,
            "sample": self.sample.to_json(),
        }

    @classmethod
    def from_json(cls, doc: Any, *, agent: str) -> Self:
        """Read a body; the sample's signature is still to be verified. Raises MessageRefused."""
        got = take(doc, _REQUEST, "permit request")
        return cls(
            agent=agent,
            link=got["link"],
            endpoint=got["endpoint"],
            nonce=got["nonce"],
            boot_id=got["boot_id"],
            secy_id=got["secy_id"],
            last_order=(got["last_order"][0], got["last_order"][1]),
            violation_generation=got["violation_generation"],
            closed=got["closed"],
            sample=Sample.from_json(got["sample"]),
        )


class PermitSource(Protocol):
    """Who answers a pull: the gate. The hub calls it after it has verified certificate and sample."""

    async def answer(self, request: PermitRequest) -> bytes:
        """Return the answer's octets (`issue`). Raises a KeymgmtError when it could not tell."""
        ...


_REQUEST: Final[Mapping[str, Check]] = {
    "v": lambda v: v == 1 and is_count(v),
    "nonce": is_nonce,
    "boot_id": is_str,
    "link": is_str,
    "endpoint": is_str,
    "secy_id": is_str,
    "last_order": lambda v: isinstance(v, list) and len(v) == 2 and all(map(is_count, v)),
    "violation_generation": is_count,
    "closed": is_bool,
    "sample": is_map,
}
