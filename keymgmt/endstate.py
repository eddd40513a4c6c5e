"""What is read back of one end: SAs, path, counters. One coding, from the data plane to the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from keymgmt.checks import (
    Check,
    decode_counters,
    encode_counters,
    is_an,
    is_bool,
    is_key_id,
    is_map,
    is_sci,
    is_str,
    is_u64,
    list_of,
    opt,
    take,
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One read-back of a SecY, as its driver gives it.

    Attributes:
        secy_id: names one SecY lifetime; another value means that every key of before is gone.
        encoding_an: AN in use for transmit, None before the first key.
        path: "open" or "closed", as the data plane holds it now.
        faults: names of injected faults; non-empty only in a data plane started with --allow-faults.
        counters: flat Linux counter names (keymgmt.counters), values as integers.
    """

    secy_id: str
    protect: bool
    encrypt: bool
    validate: str
    tx_sci: str
    encoding_an: int | None
    tx: tuple[SaState, ...]
    rx_sci: str
    rx: tuple[SaState, ...]
    path: str
    revert_pending: bool
    counters: Mapping[str, int]
    faults: tuple[str, ...] = ()

    def key_of_tx(self) -> str | None:
        """Key id in use for transmit, None before the first key."""
        return next((sa.key_id for sa in self.tx if sa.an == self.encoding_an), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object: SAs under "tx" and "rx", 64-bit values as decimal strings."""
        return {
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
            "path": self.path,
            "revert_pending": self.revert_pending,
            "counters": encode_counters(self.counters),
            "faults": list(self.faults),
        }

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """Read what `to_json` wrote. Raises MessageRefused."""
        return cls(**_decoded(doc, _READING))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState(Reading):
    """A reading with what only the agent knows: all it can say of its end (the result of `read`).

    Attributes:
        burnt: the last 8 key ids that this agent ever touched, newest last.
    """

    boot_id: str
    burnt: tuple[str, ...]

    @classmethod
    def of(cls, reading: Reading, *, boot_id: str, burnt: tuple[str, ...]) -> Self:
        """Add to a driver's reading."""
        known = {field.name: getattr(reading, field.name) for field in fields(reading)}
        return cls(**known, boot_id=boot_id, burnt=burnt)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the reading, with boot id and burnt key ids."""
        return Reading.to_json(self) | {"boot_id": self.boot_id, "burnt": list(self.burnt)}

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """Read what `to_json` wrote. Raises MessageRefused."""
        got = _decoded(doc, _STATE)
        return cls(**got | {"burnt": tuple(got["burnt"])})


def _decoded(doc: Any, form: Mapping[str, Check]) -> dict[str, Any]:
    """Return the fields of a reading, and what else `form` has, by their names."""
    got = take(doc, form, "state")
    tx, rx = take(got["tx"], _TX, "state.tx"), take(got["rx"], _RX, "state.rx")
    return got | {
        "tx_sci": tx["sci"],
        "encoding_an": tx["encoding_an"],
        "tx": tuple(SaState.from_json(sa, "next_pn") for sa in tx["sas"]),
        "rx_sci": rx["sci"],
        "rx": tuple(SaState.from_json(sa, "lowest_pn") for sa in rx["sas"]),
        "counters": decode_counters(got["counters"]),
        "faults": tuple(got["faults"]),
    }


_RX: Final[Mapping[str, Check]] = {"sci": is_sci, "sas": list_of(is_map, 4)}
_TX: Final[Mapping[str, Check]] = {**_RX, "encoding_an": opt(is_an)}
_READING: Final[Mapping[str, Check]] = {
    "secy_id": is_str,
    "protect": is_bool,
    "encrypt": is_bool,
    "validate": is_str,
    "tx": is_map,
    "rx": is_map,
    "path": lambda v: v in ("open", "closed"),
    "revert_pending": is_bool,
    "counters": is_map,
    "faults": list_of(is_str, 32),
}
_STATE: Final[Mapping[str, Check]] = {**_READING, "boot_id": is_str, "burnt": list_of(is_key_id, 8)}
