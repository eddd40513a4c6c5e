"""What a conductor asks of an agent and what comes back: operations, acknowledgements, read-back state.

Decides the shape of both on the wire (rotation.md section 4) and nothing else. The codecs are strict: an
unknown field, a missing field or a wrong type is refused, never guessed (`keymgmt.checks`).
`Operation.rotation` carries the rotation's id; `params` holds only what the table `PARAMS` names for a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from keymgmt.checks import (
    Check,
    is_an,
    is_bool,
    is_check,
    is_count,
    is_hex,
    is_key_id,
    is_map,
    is_nonce,
    is_sci,
    is_str,
    is_u64,
    list_of,
    object_of,
    opt,
    take,
)


class OpKind(StrEnum):
    """What an agent can be asked to do."""

    READ = "read"
    PREPARE = "prepare"
    INSTALL = "install"
    SELECT_TX = "select_tx"
    PROBE = "probe"
    VERIFY = "verify"
    CONFIRM = "confirm"
    REVERT_TX = "revert_tx"
    SAMPLE = "sample"
    RETIRE_TX = "retire_tx"
    RETIRE_RX = "retire_rx"
    ABANDON = "abandon"


class AckStatus(StrEnum):
    """`refused`: nothing was touched. `failed`: it was tried; read the state before the next step."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


AD: Final[Mapping[str, Check]] = {
    "link": is_str,
    "rotation": is_str,
    "cipher": is_str,
    "an": is_an,
    "scis": list_of(is_sci, 2),  # [endpoint A, endpoint B], in the order of the link
    "nonce_a": is_nonce,
    "nonce_b": is_nonce,
}
"""What both ends bind a wrap to (rotation.md 1.3); `keymgmt.derive.associated_data` makes its bytes."""

PARAMS: Final[Mapping[OpKind, Mapping[str, Check]]] = {
    OpKind.READ: {},
    OpKind.PREPARE: {"an": is_an, "cipher": is_str, "tx_sci": is_sci, "rx_sci": is_sci, "ssci": is_count},
    OpKind.INSTALL: {
        "an": is_an,
        "cipher": is_str,
        "ciphertext": is_str,
        "key_version": is_count,
        "ad": object_of(AD),
    },
    OpKind.SELECT_TX: {"an": is_an, "key_id": is_key_id, "revert_after_ms": is_count},
    OpKind.PROBE: {"an": is_an, "count": is_count, "probe_id": is_nonce},
    OpKind.VERIFY: {"an": is_an, "key_id": is_key_id, "probe_id": is_nonce},
    OpKind.CONFIRM: {"an": is_an},
    OpKind.REVERT_TX: {"an": is_an, "key_id": is_key_id},
    OpKind.SAMPLE: {},
    OpKind.RETIRE_TX: {"an": is_an, "key_id": is_key_id},
    OpKind.RETIRE_RX: {"an": is_an, "key_id": is_key_id},
    OpKind.ABANDON: {"key_ids": object_of({"tx": is_key_id, "rx": is_key_id})},
}

RESULTS: Final[Mapping[OpKind, Mapping[str, Check]]] = {
    OpKind.READ: {"state": is_map},  # EndpointState
    OpKind.PREPARE: {"nonce": is_nonce},
    OpKind.INSTALL: {
        "key_ids": object_of({"tx": is_key_id, "rx": is_key_id}),
        "checks": object_of({"tx": is_check, "rx": is_check}),  # as read back from the data plane
        "counters": is_map,
    },
    OpKind.SELECT_TX: {"encoding_an": is_an, "was": opt(is_an)},
    OpKind.PROBE: {
        "sent": is_count,
        "nonces": list_of(is_hex(8), 256),
        "next_pn": is_u64,
        "counters": is_map,
    },
    OpKind.VERIFY: {"seen": is_count, "nonces": list_of(is_hex(8), 256), "counters": is_map},
    OpKind.CONFIRM: {"revert_pending": is_bool},
    OpKind.REVERT_TX: {"encoding_an": opt(is_an)},
    OpKind.SAMPLE: {"sample": is_map},  # keymgmt.counters.Sample
    OpKind.RETIRE_TX: {"finals": is_map},  # the SA's last counters; {} when it was gone already
    OpKind.RETIRE_RX: {"finals": is_map},
    OpKind.ABANDON: {"deleted": list_of(is_str, 2)},  # of "tx", "rx"
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One order of a conductor to the agent at one end of a link; journalled before it is delivered.

    Attributes:
        token: the lease's fencing token, monotone per estate; with `holder` it names the conductor.
        op_seq: monotone per link and endpoint within a token and across tokens.
        poll_nonce: the agent's own nonce of the poll that this answers.
        time_to_act_ms: counted by the agent from that poll; later than this it refuses.
        params: exactly the fields of `PARAMS[kind]`.
    """

    op_id: str
    link: str
    kind: OpKind
    token: int
    holder: str
    op_seq: int
    poll_nonce: str
    time_to_act_ms: int
    rotation: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        take(dict(self.params), PARAMS[self.kind], f"operation {self.kind}")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads back."""
        return {name: getattr(self, name) for name in _OPERATION} | {
            "kind": str(self.kind),
            "params": dict(self.params),
        }

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """Read an operation. Raises MessageRefused."""
        got = take(doc, _OPERATION, "operation")
        return cls(**(got | {"kind": OpKind(got["kind"])}))


@dataclass(frozen=True, slots=True)
class Ack:
    """What an agent did about one operation. Repeats of an op_id carry the same stored ack.

    Attributes:
        error: None, or {"code", "detail"}. Codes of the fence are stale_token, stale_seq and expired, with
            {"last": token or place held} as result; others name the check or the errno that said no.
        boot_id: of the machine the agent runs on.
    """

    op_id: str
    op_seq: int
    token: int
    status: AckStatus
    boot_id: str
    result: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads back."""
        return {name: getattr(self, name) for name in _ACK} | {
            "status": str(self.status),
            "result": dict(self.result),
            "error": dict(self.error) if self.error is not None else None,
        }

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """Read an acknowledgement; check its result with `check_result`. Raises MessageRefused."""
        got = take(doc, _ACK, "ack")
        return cls(**(got | {"status": AckStatus(got["status"])}))

    def check_result(self, kind: OpKind) -> dict[str, Any]:
        """Return the result of a done operation of `kind`. Raises MessageRefused."""
        return take(dict(self.result), RESULTS[kind], f"result of {kind}")


_OPERATION: Final[Mapping[str, Check]] = {
    "op_id": is_str,
    "link": is_str,
    "kind": lambda v: isinstance(v, str) and v in set(OpKind),
    "token": is_count,
    "holder": is_str,
    "op_seq": is_count,
    "poll_nonce": is_nonce,
    "time_to_act_ms": is_count,
    "rotation": opt(is_str),
    "params": is_map,
}
_ACK: Final[Mapping[str, Check]] = {
    "op_id": is_str,
    "op_seq": is_count,
    "token": is_count,
    "status": lambda v: isinstance(v, str) and v in set(AckStatus),
    "boot_id": is_str,
    "result": is_map,
    "error": opt(object_of({"code": is_str, "detail": is_str})),
}
