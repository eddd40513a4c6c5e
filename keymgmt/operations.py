"""What a conductor asks of an agent and what comes back: operations, acknowledgements, read-back state.

Decides the shape of both on the wire (rotation.md section 4) and nothing else. The codecs are strict: an
unknown field, a missing field or a wrong type is refused, never guessed. 64-bit counters (PNs, totals) are
decimal strings in JSON, since RFC 8785 numbers end at 2**53; tokens and sequence numbers stay below that.
`Operation.rotation` carries the rotation's id; `params` holds only what the table `PARAMS` names for a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from keymgmt.errors import MessageRefused

SAFE_INT: Final = 2**53 - 1  # the largest integer that canonical JSON carries
Check = Callable[[Any], bool]


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


def is_str(value: Any) -> bool:
    """A non-empty string of at most 65,536 characters."""
    return isinstance(value, str) and 0 < len(value) <= 65536


def is_count(value: Any) -> bool:
    """An integer from 0 to 2**53 - 1; a boolean is not an integer here."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= SAFE_INT


def is_an(value: Any) -> bool:
    """An association number, 0 to 3 (802.1AE 9.9)."""
    return is_count(value) and value <= 3


def is_u64(value: Any) -> bool:
    """An unsigned 64-bit value as a decimal string without leading zeros."""
    return (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and (value == "0" or value[0] != "0")
        and int(value) < 2**64
    )


def is_hex(octets: int) -> Check:
    """Return a check for exactly `octets` octets in lower-case hex."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, str) and len(value) == 2 * octets and not set(value) - set("0123456789abcdef")
        )

    return check


def _list_of(check: Check, most: int) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(check, value))


def _opt(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _object(fields: Mapping[str, Check]) -> Check:
    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and set(value) == set(fields)
            and all(fields[k](v) for k, v in value.items())
        )

    return check


is_sci, is_key_id, is_nonce, is_check = is_hex(8), is_hex(16), is_hex(16), is_hex(16)
is_bool: Check = lambda value: isinstance(value, bool)  # noqa: E731
is_map: Check = lambda value: isinstance(value, dict)  # noqa: E731

AD: Final[Mapping[str, Check]] = {
    "link": is_str,
    "rotation": is_str,
    "cipher": is_str,
    "an": is_an,
    "scis": _list_of(is_sci, 2),  # [endpoint A, endpoint B], in the order of the link
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
        "ad": _object(AD),
    },
    OpKind.SELECT_TX: {"an": is_an, "key_id": is_key_id, "revert_after_ms": is_count},
    OpKind.PROBE: {"an": is_an, "count": is_count, "probe_id": is_nonce},
    OpKind.VERIFY: {"an": is_an, "key_id": is_key_id, "probe_id": is_nonce},
    OpKind.CONFIRM: {"an": is_an},
    OpKind.REVERT_TX: {"an": is_an, "key_id": is_key_id},
    OpKind.SAMPLE: {},
    OpKind.RETIRE_TX: {"an": is_an, "key_id": is_key_id},
    OpKind.RETIRE_RX: {"an": is_an, "key_id": is_key_id},
    OpKind.ABANDON: {"key_ids": _object({"tx": is_key_id, "rx": is_key_id})},
}

RESULTS: Final[Mapping[OpKind, Mapping[str, Check]]] = {
    OpKind.READ: {"state": is_map},  # EndpointState
    OpKind.PREPARE: {"nonce": is_nonce},
    OpKind.INSTALL: {
        "key_ids": _object({"tx": is_key_id, "rx": is_key_id}),
        "checks": _object({"tx": is_check, "rx": is_check}),  # as read back from the data plane
        "counters": is_map,
    },
    OpKind.SELECT_TX: {"encoding_an": is_an, "was": _opt(is_an)},
    OpKind.PROBE: {
        "sent": is_count,
        "nonces": _list_of(is_hex(8), 256),
        "next_pn": is_u64,
        "counters": is_map,
    },
    OpKind.VERIFY: {"seen": is_count, "nonces": _list_of(is_hex(8), 256), "counters": is_map},
    OpKind.CONFIRM: {"revert_pending": is_bool},
    OpKind.REVERT_TX: {"encoding_an": _opt(is_an)},
    OpKind.SAMPLE: {"sample": is_map},  # keymgmt.counters.Sample
    OpKind.RETIRE_TX: {"finals": is_map},  # the SA's last counters; {} when it was gone already
    OpKind.RETIRE_RX: {"finals": is_map},
    OpKind.ABANDON: {"deleted": _list_of(is_str, 2)},  # of "tx", "rx"
}


def take(doc: Any, fields: Mapping[str, Check], what: str) -> dict[str, Any]:
    """Return `doc` when it is an object of exactly `fields`, each passing its check.

    Raises:
        MessageRefused: naming the field, never its value.
    """
    if not isinstance(doc, dict):
        raise MessageRefused(f"{what}: not a JSON object")
    for name in doc.keys() - fields.keys():
        raise MessageRefused(f"{what}: unknown field {str(name)[:64]!r}")
    for name, check in fields.items():
        if name not in doc:
            raise MessageRefused(f"{what}: field {name!r} is missing")
        if not check(doc[name]):
            raise MessageRefused(f"{what}: field {name!r} has a wrong type or is out of range")
    return dict(doc)


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
    "rotation": _opt(is_str),
    "params": is_map,
}
_ACK: Final[Mapping[str, Check]] = {
    "op_id": is_str,
    "op_seq": is_count,
    "token": is_count,
    "status": lambda v: isinstance(v, str) and v in set(AckStatus),
    "boot_id": is_str,
    "result": is_map,
    "error": _opt(_object({"code": is_str, "detail": is_str})),
}


@dataclass(frozen=True, slots=True)
class SaState:
    """One SA as read back. `pn` is next_pn on the tx side, lowest_pn on the rx side."""

    an: int
    key_id: str
    pn: int
    in_use: bool

    def to_json(self, pn_name: str) -> dict[str, Any]:
        """Return {"an", "key_id", <pn_name>, "in_use"}."""
        return {"an": self.an, "key_id": self.key_id, pn_name: str(self.pn), "in_use": self.in_use}

    @classmethod
    def from_json(cls, doc: Any, pn_name: str) -> Self:
        """Read what `to_json` wrote. Raises MessageRefused."""
        got = take(doc, {"an": is_an, "key_id": is_key_id, pn_name: is_u64, "in_use": is_bool}, "sa")
        return cls(got["an"], got["key_id"], int(got[pn_name]), got["in_use"])


@dataclass(frozen=True, slots=True)
class EndpointState:
    """Everything an agent can say of its end (the result of `read`).

    Attributes:
        secy_id: names one SecY lifetime; another value means that every key of before is gone.
        encoding_an: AN in use for transmit, None before the first key.
        burnt: the last 8 key ids that this agent ever touched, newest last.
        path: "open" or "closed", as the data plane holds it now.
        faults: names of injected faults; non-empty only in a data plane started with --allow-faults.
        counters: flat Linux counter names (keymgmt.counters), values as integers.
    """

    boot_id: str
    secy_id: str
    protect: bool
    encrypt: bool
    validate: str
    tx_sci: str
    encoding_an: int | None
    tx: tuple[SaState, ...]
    rx_sci: str
    rx: tuple[SaState, ...]
    burnt: tuple[str, ...]
    path: str
    revert_pending: bool
    counters: Mapping[str, int]
    faults: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the contract."""
        return {
            "boot_id": self.boot_id,
            "secy_id": self.secy_id,
            "protect": self.protect,
            "encrypt": self.encrypt,
            "validate": self.validate,
            "tx": {
                "sci": self.tx_sci,
                "encoding_an": self.encoding_an,
                "sas": [sa.to_json("next_pn") for sa in self.tx],
            },
            "rx": {"sci": self.rx_sci, "sas": [sa.to_json("lowest_pn") for sa in self.rx]},
            "burnt": list(self.burnt),
            "path": self.path,
            "revert_pending": self.revert_pending,
            "counters": encode_counters(self.counters),
            "faults": list(self.faults),
        }

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """Read what `to_json` wrote. Raises MessageRefused."""
        got = take(doc, _STATE, "state")
        tx = take(
            got["tx"], {"sci": is_sci, "encoding_an": _opt(is_an), "sas": _list_of(is_map, 4)}, "state.tx"
        )
        rx = take(got["rx"], {"sci": is_sci, "sas": _list_of(is_map, 4)}, "state.rx")
        return cls(
            got["boot_id"],
            got["secy_id"],
            got["protect"],
            got["encrypt"],
            got["validate"],
            tx["sci"],
            tx["encoding_an"],
            tuple(SaState.from_json(sa, "next_pn") for sa in tx["sas"]),
            rx["sci"],
            tuple(SaState.from_json(sa, "lowest_pn") for sa in rx["sas"]),
            tuple(got["burnt"]),
            got["path"],
            got["revert_pending"],
            decode_counters(got["counters"]),
            tuple(got["faults"]),
        )


_STATE: Final[Mapping[str, Check]] = {
    "boot_id": is_str,
    "secy_id": is_str,
    "protect": is_bool,
    "encrypt": is_bool,
    "validate": is_str,
    "tx": is_map,
    "rx": is_map,
    "burnt": _list_of(is_key_id, 8),
    "path": lambda v: v in ("open", "closed"),
    "revert_pending": is_bool,
    "counters": is_map,
    "faults": _list_of(is_str, 32),
}


def encode_counters(counters: Mapping[str, int]) -> dict[str, str]:
    """Return counters with 64-bit values as decimal strings."""
    return {name: str(value) for name, value in counters.items()}


def decode_counters(doc: Any) -> dict[str, int]:
    """Read what `encode_counters` wrote. Raises MessageRefused."""
    if not isinstance(doc, dict) or len(doc) > 512:
        raise MessageRefused("counters: not an object of at most 512 names")
    if not all(isinstance(name, str) and is_u64(value) for name, value in doc.items()):
        raise MessageRefused("counters: a value is not a decimal string of 64 bits")
    return {name: int(value) for name, value in doc.items()}
