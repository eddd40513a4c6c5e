"""What two read-backs say together: live pairs, garbage, free ANs, drained directions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from keymgmt.endstate import EndpointState
from keymgmt.model import SIDES, Side, other
from keymgmt.rotation import Rotation

Ends = Mapping[Side, EndpointState]
Sa = dict[str, Any]
Removal = list[list[Any]]  # [[side, "tx" | "rx", an, key id], ...]: JSON, as the journal keeps it

_ARRIVED: Final = ("InPktsOK", "InPktsNotValid", "InPktsLate", "InPktsNotUsingSA", "InPktsUnchecked")


def read_ends(state: Rotation) -> Ends:
    """Both read-backs of the present step.

    Raises:
        MessageRefused: an agent's state is not of the agreed form.
    """
    return {side: EndpointState.from_json(state.result(side)["state"]) for side in SIDES}


def where(end: EndpointState) -> Sa | None:
    """The SA an end transmits under: {an, key_id, pn}; None when it transmits nothing."""
    found = next((sa for sa in end.tx if sa.an == end.encoding_an), None)
    return None if found is None else {"an": found.an, "key_id": found.key_id, "pn": found.pn}


def live_pairs(ends: Ends) -> dict[str, bool]:
    """Per transmitting side: does the peer hold its key under the same AN?"""
    pairs: dict[str, bool] = {}
    for side in SIDES:
        sa = where(ends[side])
        heard = {(rx.an, rx.key_id) for rx in ends[other(side)].rx}
        pairs[side] = sa is not None and (sa["an"], sa["key_id"]) in heard
    return pairs


def garbage(ends: Ends) -> Removal:
    """SAs no live pair uses: transmit SAs not selected, receive SAs that the peer does not send to."""
    keep: dict[str, set[tuple[str, int, str]]] = {"a": set(), "b": set()}
    for side in SIDES:
        sa = where(ends[side])
        if sa is not None:
            keep[side].add(("tx", sa["an"], sa["key_id"]))
            keep[other(side)].add(("rx", sa["an"], sa["key_id"]))
    return _all_but(ends, keep)


def leftovers(ends: Ends, key_ids: Mapping[str, Mapping[str, str]]) -> Removal:
    """Every SA that is not of the new pair, transmit first."""
    keep: dict[str, set[tuple[str, int, str]]] = {
        side: {
            (which, sa.an, sa.key_id)
            for which, sas in (("tx", ends[side].tx), ("rx", ends[side].rx))
            for sa in sas
            if sa.key_id == key_ids[side][which]
        }
        for side in SIDES
    }
    return _all_but(ends, keep)


def _all_but(ends: Ends, keep: Mapping[str, set[tuple[str, int, str]]]) -> Removal:
    return [
        [side, which, sa.an, sa.key_id]
        for which in ("tx", "rx")
        for side in SIDES
        for sa in (ends[side].tx if which == "tx" else ends[side].rx)
        if (which, sa.an, sa.key_id) not in keep[side]
    ]


def free_an(ends: Ends, most: int) -> int | None:
    """The next AN after those in use that is empty in all four SA lists."""
    taken = {sa.an for side in SIDES for sa in (*ends[side].tx, *ends[side].rx)}
    newest = max((end.encoding_an for end in ends.values() if end.encoding_an is not None), default=-1)
    return next((an for step in range(most) if (an := (newest + 1 + step) % most) not in taken), None)


def drained(
    memo: Mapping[str, Any], ends: Ends, silence_ns: int, now_ns: int
) -> tuple[bool, dict[str, list[str]]]:
    """Whether both old directions are empty, and what to remember for the next look.

    Drained (A to B): A's old next PN has not moved between two looks, and B has counted all that A sent on
    it (good + bad), or nothing arrived under it for `silence_ns`. Without a live old pair: drained.
    """
    seen: dict[str, list[str]] = {}
    done = True
    before: Mapping[str, list[str]] = memo.get("seen") or {}
    for side in SIDES:
        old = memo["old"][side]
        if old is None or not memo["paired"][side]:
            continue
        pn, arrived = _progress(ends, side, old)
        was = before.get(side)
        if was is None or (int(was[0]), int(was[1])) != (pn, arrived):
            seen[side] = [str(pn), str(arrived), str(now_ns)]
            done = False
            continue
        seen[side] = list(was)
        quiet = now_ns - int(was[2]) >= silence_ns
        done = done and (arrived >= pn - 1 or quiet)
    return done, seen


def _progress(ends: Ends, side: Side, old: Mapping[str, Any]) -> tuple[int, int]:
    """(next PN of the old transmit SA, frames its receiver has counted under it)."""
    pn = next((sa.pn for sa in ends[side].tx if sa.key_id == old["key_id"]), 1)
    counters = ends[other(side)].counters
    return pn, sum(counters.get(f"rxsa.{old['an']}.{name}", 0) for name in _ARRIVED)
