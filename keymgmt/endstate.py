"""What an agent reads back of its end: SAs, path, counters (the result of `read`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
            got["tx"], {"sci": is_sci, "encoding_an": opt(is_an), "sas": list_of(is_map, 4)}, "state.tx"
        )
        rx = take(got["rx"], {"sci": is_sci, "sas": list_of(is_map, 4)}, "state.rx")
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
    "burnt": list_of(is_key_id, 8),
    "path": lambda v: v in ("open", "closed"),
    "revert_pending": is_bool,
    "counters": is_map,
    "faults": list_of(is_str, 32),
}
