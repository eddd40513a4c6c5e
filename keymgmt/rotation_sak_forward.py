"""How the steps of the SAK table are judged on the way forward, from the survey to the proof. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keymgmt.endstate import EndpointState
from keymgmt.model import SIDES, LinkSpec, Side, other
from keymgmt.probes import judge_probe
from keymgmt.rotation import Move, Rotation
from keymgmt.rotation_readback import Ends, drained, free_an, garbage, leftovers, live_pairs, read_ends, where
from keymgmt.rotation_sak_back import SOON_NS, back, both_new, gone, rekeyed, secy_ids
from keymgmt.rotation_sak_orders import probe_id


def survey(state: Rotation, link: LinkSpec, _now_ns: int) -> Move:
    """Numbered start conditions; nothing has been touched when one fails."""
    ends = read_ends(state)
    for side in SIDES:
        end = ends[side]
        # 1. Encryption is on and strict: a rotation that cannot be verified is not started.
        if not end.protect or not end.encrypt or end.validate != "strict":
            why = f"end {side}: encryption is off or validation is not strict"
            return Move(end="not started", why=why)
        # 2. Exactly two members with the SCIs of the plan.
        if (end.tx_sci, end.rx_sci) != (link.end(side).sci, link.peer(side).sci):
            return Move(end="not started", why=f"end {side}: SCIs differ from the plan")
    # 3. Transmit keys are known and final: no watchdog may still act.
    if any(end.revert_pending for end in ends.values()):
        return Move(again_ns=SOON_NS, why="a revert timer is still running")
    old = {side: where(ends[side]) for side in SIDES}
    # 4. The old SA has packet numbers left for a whole rollback.
    for side in SIDES:
        sa = old[side]
        if sa is not None and sa["pn"] >= link.profile.pn_limit:
            return Move(
                end="not started", why=f"end {side}: the old SA has no packet numbers left to roll back to"
            )
    # 5. What no live pair uses is removed first (remains of a dead SecY); its AN is needed.
    remove = garbage(ends)
    if remove:
        return Move("tidy tx", why="SAs that no live key pair uses", memo={"remove": remove})
    # 6. An AN that read-back shows empty at both ends.
    an = free_an(ends, link.profile.max_sa_per_sc)
    if an is None:
        return Move(end="not started", why="no association number is empty at both ends")
    keep = {
        side: None if (sa := old[side]) is None else {"an": sa["an"], "key_id": sa["key_id"]}
        for side in SIDES
    }
    paired = live_pairs(ends)
    memo = {"an": an, "old": keep, "paired": paired, "secy": secy_ids(ends), "remove": None}
    return Move("prepare", memo=memo, why="" if all(paired.values()) else "first keying: no live key pair")


def prepared(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Each agent gave a nonce that lives in its memory only."""
    nonces = {side: state.result(side)["nonce"] for side in SIDES}
    if nonces["a"] == nonces["b"]:
        return Move(end="not started", why="both ends gave one nonce")
    return Move("mint", memo={"nonces": nonces})


def minted(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """The version is an absolute number from now on."""
    return Move("wrap", memo={"version": state.result("kms")["version"]})


def wrapped(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """The wrap must be under the version that was minted: OpenBao checks no fencing token."""
    result = state.result("kms")
    if result["version"] != state.memo["version"]:
        return Move("settle", why="the key store wrapped under another version than was minted")
    return Move("install", memo={"ciphertext": result["ciphertext"]})


def installed(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Both ends hold receive and unselected transmit keys; values are compared next."""
    ids = {side: dict(state.result(side)["key_ids"]) for side in SIDES}
    checks = {side: dict(state.result(side)["checks"]) for side in SIDES}
    return Move("compare", memo={"key_ids": ids, "checks": checks})


def compared(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Equal derivation at both ends, each direction apart; the check value covers SSCIs and cipher."""
    ids, checks = state.memo["key_ids"], state.memo["checks"]
    for side in SIDES:
        peer = other(side)
        if checks[side]["tx"] != checks[peer]["rx"]:
            return Move(
                "discard", why=f"check values differ ({side} to {peer}): abandoned before any transmit"
            )
        if ids[side]["tx"] != ids[peer]["rx"]:
            return Move("discard", why=f"key ids differ ({side} to {peer}): abandoned before any transmit")
    return Move("destroy")


def destroyed(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """The wrap can be opened by nobody any more; only now is a switch allowed."""
    return Move("baseline", memo=gone(state))


def baseline(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Read-back of the install: an end that answered "done" and changed nothing is found here."""
    ends = read_ends(state)
    if secy_ids(ends) != state.memo["secy"]:
        return rekeyed("another SecY lifetime before the switch")
    an = state.memo["an"]
    for side in SIDES:
        ids = state.memo["key_ids"][side]
        have = {
            (w, sa.an, sa.key_id) for w, sas in (("tx", ends[side].tx), ("rx", ends[side].rx)) for sa in sas
        }
        if not {("tx", an, ids["tx"]), ("rx", an, ids["rx"])} <= have:
            return Move("assess", why=f"end {side}: read-back shows no new key under AN {an}")
    counters = {side: _counters(ends[side].counters) for side in SIDES}
    return Move("select a", memo={"before": counters})


def _counters(counters: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in counters.items()}


def selected(side: Side) -> Any:
    """The switch at `side` is a confirmed commit: it reverts by itself unless confirmed."""

    def judge(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
        if state.result(side)["encoding_an"] != state.memo["an"]:
            return Move("assess", why=f"end {side}: transmit did not move to the new AN")
        return Move(f"look {other(side)}")

    return judge


def looked(side: Side) -> Any:
    """Keep the later counters as the base of the verdict."""

    def judge(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
        if side not in state.outcomes:
            return Move(f"probe {other(side)}")
        end = EndpointState.from_json(state.result(side)["state"])
        before = {**state.memo["before"], side: _counters(end.counters)}
        return Move(f"probe {other(side)}", memo={"before": before})

    return judge


def probed(side: Side) -> Any:
    """Keep the nonces that really left the SecY."""

    def judge(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
        memo = {"probes": list(state.result(side)["nonces"]), "probe_id": probe_id(state)}
        return Move(f"verify {other(side)}", memo=memo)

    return judge


def verified(side: Side) -> Any:
    """Judge the direction towards `side` by its counters, never by the sender's word."""

    def judge(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
        result = state.result(side)
        verdict = judge_probe(
            an=state.memo["an"],
            sent=state.memo["probes"],
            seen=result["nonces"],
            before={name: int(v) for name, v in state.memo["before"][side].items()},
            after={name: int(v) for name, v in result["counters"].items()},
        )
        if verdict.outcome == "unknown":
            return Move(again_ns=SOON_NS, why=verdict.why)
        if verdict.outcome != "verified":
            return back(state, f"{other(side)} to {side}: {verdict.why}")
        return Move(
            "select b" if side == "b" else "confirm", why=verdict.why, memo={"probes": None, "probe_id": None}
        )

    return judge


def confirmed(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Both ends acknowledged that their revert is disarmed: this is the commit."""
    if any(state.result(side)["revert_pending"] for side in SIDES):
        return Move("assess", why="an end did not disarm its revert timer")
    return Move("overlap", memo={"committed": True})


def overlap(state: Rotation, link: LinkSpec, now_ns: int) -> Move | None:
    """Both old keys stay for the overlap window."""
    left = state.entered_ns + link.profile.overlap_ns - now_ns
    return Move("drain") if left <= 0 else None


def drain(state: Rotation, link: LinkSpec, now_ns: int) -> Move:
    """Nothing is retired before both old directions are empty."""
    ends = read_ends(state)
    left = _left_the_new_key(state, ends, "in the overlap window")
    if left is not None:
        return left
    done, seen = drained(state.memo, ends, link.profile.drain_silence_ns, now_ns)
    if not done:
        return Move(again_ns=SOON_NS, memo={"seen": seen})
    return Move("retire tx", memo={"seen": None, "remove": leftovers(ends, state.memo["key_ids"])})


def _left_the_new_key(state: Rotation, ends: Ends, when: str) -> Move | None:
    """The exit of a step after the commit whose ends are no longer what was committed; else None."""
    if secy_ids(ends) != state.memo["secy"]:
        return rekeyed(f"another SecY lifetime {when}")
    if not both_new(state, ends):
        return Move("assess", why="an end no longer transmits under the new key")
    return None


def proof(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Read-back of the absence of every other key, and of the new one in use at both ends."""
    ends = read_ends(state)
    left = _left_the_new_key(state, ends, "while retiring")
    if left is not None:
        return left
    remove = leftovers(ends, state.memo["key_ids"])
    if remove:
        return Move("retire tx", memo={"remove": remove}, why="read-back still shows an old key")
    return Move(end="complete")
