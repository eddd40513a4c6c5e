"""What each step of the SAK table orders (rotation.md section 2). Pure."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from keymgmt.model import SIDES, LinkSpec, Side, other, ssci
from keymgmt.rotation import Command, Rotation

_PROBES: Final = 5  # frames of one burst


def read_both(_state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    """Read both ends."""
    return tuple(Command(side, "read", side) for side in SIDES)


def nothing(_state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    """A pure step or a wait."""
    return ()


def prepare(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
    """A nonce of each end, and its look at the plan."""
    return tuple(
        Command(
            side,
            "prepare",
            side,
            {
                "an": state.memo["an"],
                "cipher": link.profile.cipher,
                "tx_sci": link.end(side).sci,
                "rx_sci": link.peer(side).sci,
                "ssci": ssci(link.end(side).sci, link.peer(side).sci),
            },
        )
        for side in SIDES
    )


def mint(_state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    """A new version; after a crash before it was journalled another one is made."""
    return (Command("kms", "mint", None),)


def wrap(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
    """A data key wrapped under that version and bound to both nonces."""
    return (Command("kms", "wrap", None, {"version": state.memo["version"], "ad": _ad(state, link)}),)


def _ad(state: Rotation, link: LinkSpec) -> dict[str, Any]:
    nonces = state.memo["nonces"]
    return {
        "link": link.name,
        "rotation": state.rotation,
        "cipher": link.profile.cipher,
        "an": state.memo["an"],
        "scis": [link.a.sci, link.b.sci],
        "nonce_a": nonces["a"],
        "nonce_b": nonces["b"],
    }


def install(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
    """Receive enabled, transmit not selected, at both ends."""
    params = {
        "an": state.memo["an"],
        "cipher": link.profile.cipher,
        "ciphertext": state.memo["ciphertext"],
        "key_version": state.memo["version"],
        "ad": _ad(state, link),
    }
    return tuple(Command(side, "install", side, params) for side in SIDES)


def destroy(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    """Destroy the wrapping version, unless there is none or it is done."""
    if state.memo.get("version") is None or state.memo.get("destroyed"):
        return ()
    return (Command("kms", "destroy", None, {"version": state.memo["version"]}),)


def select(side: Side) -> Any:
    """Transmit under the new key at `side`, reverting by itself."""

    def commands(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
        params = {
            "an": state.memo["an"],
            "key_id": state.memo["key_ids"][side]["tx"],
            "revert_after_ms": link.profile.revert_after_ns // 1_000_000,
        }
        return (Command(side, "select_tx", side, params),)

    return commands


def probe(side: Side) -> Any:
    """A burst of probes from `side`."""

    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        params = {"an": state.memo["an"], "count": _PROBES, "probe_id": probe_id(state)}
        return (Command(side, "probe", side, params),)

    return commands


def verify(side: Side) -> Any:
    """What `side` decrypted of the burst, and its counters."""

    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        params = {
            "an": state.memo["an"],
            "key_id": state.memo["key_ids"][side]["rx"],
            "probe_id": state.memo["probe_id"],
        }
        return (Command(side, "verify", side, params),)

    return commands


def probe_id(state: Rotation) -> str:
    """Another one for each burst: a receiver remembers what it saw of earlier ones."""
    return hashlib.sha256(f"probe\n{state.command_id('probe')}".encode()).hexdigest()[:32]


def confirm(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    """Disarm the revert at both ends."""
    return tuple(Command(side, "confirm", side, {"an": state.memo["an"]}) for side in SIDES)


def revert(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    """Back to the old AN where there is one; its packet numbers continue."""
    old = state.memo["old"]
    return tuple(
        Command(side, "revert_tx", side, {"an": old[side]["an"], "key_id": old[side]["key_id"]})
        for side in SIDES
        if side in state.memo.get("revert", ()) and old[side] is not None
    )


def abandon(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    """Delete what this rotation installed, by key id."""
    ids = state.memo["key_ids"]
    return tuple(Command(side, "abandon", side, {"key_ids": dict(ids[side])}) for side in SIDES)


def removal(which: str) -> Any:
    """Retire what the last read of both ends named: memo["remove"] = [[side, which, an, key id], ...]."""

    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        wanted = [sa for sa in state.memo.get("remove", ()) if sa[1] == which]
        return tuple(
            Command(f"{side}.{an}", f"retire_{which}", side, {"an": an, "key_id": key_id})
            for side, _which, an, key_id in wanted
        )

    return commands


def look(side: Side) -> Any:
    """Errors of an old key that `side` cannot receive must not count against the new one: look again."""

    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        return () if state.memo["paired"][other(side)] else (Command(side, "read", side),)

    return commands
