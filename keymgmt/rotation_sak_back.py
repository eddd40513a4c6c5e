"""How a rotation turns back: assess what both ends show, then revert, abandon, read back, settle. Pure.

While an end's transmit key is unknown nothing is removed; a dead SecY took its keys along and is keyed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from keymgmt.model import SIDES, LinkSpec, Side, other
from keymgmt.rotation import End, Move, Rotation
from keymgmt.rotation_readback import Ends, read_ends, where

SOON_NS: Final = 200_000_000  # between two looks of a polling step
REREAD_NS: Final = 1_000_000_000  # between two reads of a link that is being assessed
RESIDUE: Final = 2  # reads after which a first keying may leave a transmit key nobody receives


def secy_ids(ends: Ends) -> dict[str, str]:
    """The SecY lifetime of each end."""
    return {side: ends[side].secy_id for side in SIDES}


def both_new(state: Rotation, ends: Ends) -> bool:
    """True when both ends transmit under this rotation's keys."""
    ids = state.memo["key_ids"]
    found = {side: where(ends[side]) for side in SIDES}
    return all(sa is not None and sa["key_id"] == ids[side]["tx"] for side, sa in found.items())


def gone(state: Rotation) -> dict[str, Any]:
    """What is remembered once the wrapping version is destroyed: the proof stays, the ciphertext goes."""
    proof = dict(state.result("kms")) if "kms" in state.outcomes else None
    return {"destroyed": True, "ciphertext": None, "proof": proof}


def back(state: Rotation, why: str) -> Move:
    """Bring transmit back to the old AN at once; its packet numbers continue. Then look at both ends."""
    sides = [side for side in SIDES if state.memo["old"][side] is not None]
    return Move("revert" if sides else "assess", why=why, memo={"revert": sides})


def rekeyed(why: str) -> Move:
    """A SecY began anew: nothing to roll back to, a first keying follows."""
    return Move("settle", why=why, memo={"after": "rekeyed"})


def assess(state: Rotation, link: LinkSpec, now_ns: int) -> Move:
    """Both ends have been read after every earlier order was fenced off: decide from what is."""
    ends = read_ends(state)
    # 1. A dead SecY took its keys along: no rollback can bring them back.
    if secy_ids(ends) != state.memo["secy"]:
        return rekeyed("the SecY of an end began anew")
    # 2. Past the commit the only way is forward.
    committed = state.memo.get("committed") or _settled_new(state, ends)
    if committed and both_new(state, ends):
        return Move("drain", memo={"committed": True, "seen": None})
    if committed:
        return Move(again_ns=REREAD_NS, why="committed, but an end does not transmit under the new key")
    # 3. One end is final and has no older key to go back to: both directions were verified, so go on.
    if _stuck(state, ends) and now_ns < state.started_ns + link.profile.total_deadline_ns:
        again = "confirm" if both_new(state, ends) else "baseline"
        return Move(again, why="one end is confirmed and has no older key: switched again")
    # 4. A watchdog that may still act makes the transmit key unknown.
    moved = [side for side in SIDES if not _on_old(state, ends, side)]
    can = [side for side in moved if state.memo["old"][side] is not None]
    if can:
        return Move("revert", memo={"revert": can})
    if any(ends[side].revert_pending for side in SIDES):
        return Move(again_ns=SOON_NS, why="a revert timer is still running")
    # 5. Both ends transmit as before: what this rotation installed can go.
    ids = _known_ids(state, ends)
    return Move("settle") if ids is None else Move("abandon", memo={"key_ids": ids})


def _settled_new(state: Rotation, ends: Ends) -> bool:
    """Confirms were applied though an acknowledgement was lost: read-back proves both are disarmed."""
    asked = any(p.step == "confirm" for p in state.trail)
    return asked and both_new(state, ends) and not any(ends[side].revert_pending for side in SIDES)


def _stuck(state: Rotation, ends: Ends) -> bool:
    """An end is on the new key for good, has no older one, and both ends still hold the new pair."""
    ids = state.memo.get("key_ids")
    if ids is None or any(_missing(ends, side, ids) for side in SIDES):
        return False
    return any(
        state.memo["old"][side] is None and not ends[side].revert_pending and not _on_old(state, ends, side)
        for side in SIDES
    )


def _missing(ends: Ends, side: Side, ids: Mapping[str, Mapping[str, str]]) -> bool:
    have = {sa.key_id for sa in ends[side].tx} & {ids[side]["tx"]}
    heard = {sa.key_id for sa in ends[side].rx} & {ids[side]["rx"]}
    return not have or not heard


def _on_old(state: Rotation, ends: Ends, side: Side) -> bool:
    now, old = where(ends[side]), state.memo["old"][side]
    return (now is None and old is None) or (
        now is not None and old is not None and now["key_id"] == old["key_id"]
    )


def _known_ids(state: Rotation, ends: Ends) -> dict[str, dict[str, str]] | None:
    """Key ids of what this rotation installed: from the acknowledgements, else from read-back of its AN."""
    if "key_ids" in state.memo:
        return dict(state.memo["key_ids"]) if leftovers_new(state, ends) else None
    found: dict[str, dict[str, str]] = {side: {} for side in SIDES}
    for side in SIDES:
        for which, sas in (("tx", ends[side].tx), ("rx", ends[side].rx)):
            found[side] |= dict([(which, sa.key_id) for sa in sas if sa.an == state.memo["an"]][:1])
    if not found["a"] and not found["b"]:
        return None
    for side in SIDES:
        for which, across in (("tx", "rx"), ("rx", "tx")):
            found[side].setdefault(which, found[other(side)].get(across, "0" * 32))
    return found


def leftovers_new(state: Rotation, ends: Ends) -> bool:
    """True while an end still shows a key of this rotation."""
    ids = {v for pair in state.memo["key_ids"].values() for v in pair.values()}
    return any(sa.key_id in ids for side in SIDES for sa in (*ends[side].tx, *ends[side].rx))


def abandoned(_state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """What an end says it deleted is believed only when it is read back."""
    return Move("readback", memo={"looks": 0})


def readback(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """The burnt key's AN is free only when both deletes are read back."""
    ends = read_ends(state)
    if secy_ids(ends) != state.memo["secy"]:
        return rekeyed("the SecY of an end began anew")
    looks = state.memo.get("looks", 0) + 1
    if not leftovers_new(state, ends) or (looks >= RESIDUE and _only_residue(state, ends)):
        return Move("settle", memo={"looks": None})
    if looks >= RESIDUE:
        return Move("assess", why="read-back still shows the abandoned key", memo={"looks": None})
    return Move(again_ns=SOON_NS, memo={"looks": looks})


def _only_residue(state: Rotation, ends: Ends) -> bool:
    """All that is left is a transmit key in use at an end that had none before.

    Nobody receives it and no older key is there to go back to: closed, and replaced by the next keying.
    """
    ids = {v for pair in state.memo["key_ids"].values() for v in pair.values()}
    heard = any(sa.key_id in ids for side in SIDES for sa in ends[side].rx)
    spare = any(
        sa.key_id in ids and not (sa.in_use and state.memo["old"][side] is None)
        for side in SIDES
        for sa in ends[side].tx
    )
    return not heard and not spare


def reverted(_state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Whatever the answers said: look at both ends."""
    return Move("assess")


def discarded(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """The wrap is dead; now look at both ends."""
    return Move("assess", memo=gone(state))


def settled(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """The wrapping version is destroyed, or none was minted: the rotation ends."""
    end: End = "rekeyed" if state.memo.get("after") == "rekeyed" else "rolled back"
    return Move(end=end, memo=gone(state) if "kms" in state.outcomes else {"ciphertext": None})
