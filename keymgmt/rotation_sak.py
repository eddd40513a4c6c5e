"""The step table of the SAK kind (rotation.md section 2): which step orders what, and how each is judged.

::

    survey -> [tidy tx -> tidy rx -> survey] -> prepare -> mint -> wrap -> install -> compare -> destroy
      -> baseline -> select a -> look b -> probe a -> verify b
                  -> select b -> look a -> probe b -> verify a -> confirm   (commit)
      -> overlap -> drain -> retire tx -> retire rx -> proof -> complete

    exits:  before a key exists                not started
            install, compare                   discard -> assess -> abandon -> readback -> rolled back
            destroy .. confirm                 [revert ->] assess -> abandon -> readback -> rolled back
            after the commit                   assess -> drain (forward only)
            an end cannot be read              parked: both keys stay installed, alarm
            another SecY lifetime at an end    settle -> rekeyed (a first keying follows)

First keying is the same table walked from no key. Receive stands before transmit because `install` is done at
both ends before `select`; a key is removed only by steps that follow a read of both ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from keymgmt.model import SIDES, LinkSpec, Side, other, ssci
from keymgmt.operations import EndpointState
from keymgmt.probes import judge_probe
from keymgmt.rotation import PARKED, Command, End, Move, Rotation, Step, Table
from keymgmt.rotation_readback import Ends, drained, free_an, garbage, leftovers, live_pairs, read_ends, where

KIND: Final = "sak"
FIRST: Final = "survey"
_SOON_NS: Final = 200_000_000  # between two looks of a polling step
_REREAD_NS: Final = 1_000_000_000  # between two reads of a link that is being assessed
_PROBES: Final = 5
_FOREVER: Final = 2**62
RESIDUE: Final = 2  # reads after which a first keying may leave a transmit key nobody receives


# --- commands -----------------------------------------------------------------------------------------------


def _reads(_state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    return tuple(Command(side, "read", side) for side in SIDES)


def _nothing(_state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    return ()


def _prepare(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
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


def _mint(_state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    return (Command("kms", "mint", None),)


def _wrap(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
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


def _install(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
    params = {
        "an": state.memo["an"],
        "cipher": link.profile.cipher,
        "ciphertext": state.memo["ciphertext"],
        "key_version": state.memo["version"],
        "ad": _ad(state, link),
    }
    return tuple(Command(side, "install", side, params) for side in SIDES)


def _destroy(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    if state.memo.get("version") is None or state.memo.get("destroyed"):
        return ()
    return (Command("kms", "destroy", None, {"version": state.memo["version"]}),)


def _select(side: Side) -> Any:
    def commands(state: Rotation, link: LinkSpec) -> tuple[Command, ...]:
        params = {
            "an": state.memo["an"],
            "key_id": state.memo["key_ids"][side]["tx"],
            "revert_after_ms": link.profile.revert_after_ns // 1_000_000,
        }
        return (Command(side, "select_tx", side, params),)

    return commands


def _probe(side: Side) -> Any:
    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        params = {"an": state.memo["an"], "count": _PROBES, "probe_id": _probe_id(state, side)}
        return (Command(side, "probe", side, params),)

    return commands


def _verify(side: Side) -> Any:
    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        params = {
            "an": state.memo["an"],
            "key_id": state.memo["key_ids"][side]["rx"],
            "probe_id": _probe_id(state, other(side)),
        }
        return (Command(side, "verify", side, params),)

    return commands


def _probe_id(state: Rotation, sender: Side) -> str:
    return hashlib.sha256(f"probe\n{state.rotation}\n{sender}".encode()).hexdigest()[:32]


def _confirm(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    return tuple(Command(side, "confirm", side, {"an": state.memo["an"]}) for side in SIDES)


def _revert(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    old = state.memo["old"]
    return tuple(
        Command(side, "revert_tx", side, {"an": old[side]["an"], "key_id": old[side]["key_id"]})
        for side in SIDES
        if side in state.memo.get("revert", ()) and old[side] is not None
    )


def _abandon(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
    ids = state.memo["key_ids"]
    return tuple(Command(side, "abandon", side, {"key_ids": dict(ids[side])}) for side in SIDES)


def _remove(which: str) -> Any:
    """Retire what the last read of both ends named: memo["remove"] = [[side, which, an, key id], ...]."""

    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        wanted = [sa for sa in state.memo.get("remove", ()) if sa[1] == which]
        return tuple(
            Command(f"{side}.{an}", f"retire_{which}", side, {"an": an, "key_id": key_id})
            for side, _which, an, key_id in wanted
        )

    return commands


# --- judges: forward ----------------------------------------------------------------------------------------


def _survey(state: Rotation, link: LinkSpec, _now_ns: int) -> Move:
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
        return Move(again_ns=_SOON_NS, why="a revert timer is still running")
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
    memo = {"an": an, "old": keep, "paired": paired, "secy": _secy(ends), "remove": None}
    return Move("prepare", memo=memo, why="" if all(paired.values()) else "first keying: no live key pair")


def _secy(ends: Ends) -> dict[str, str]:
    return {side: ends[side].secy_id for side in SIDES}


def _prepared(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    nonces = {side: state.result(side)["nonce"] for side in SIDES}
    if nonces["a"] == nonces["b"]:
        return Move(end="not started", why="both ends gave one nonce")
    return Move("mint", memo={"nonces": nonces})


def _minted(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    return Move("wrap", memo={"version": state.result("kms")["version"]})


def _wrapped(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    result = state.result("kms")
    if result["version"] != state.memo["version"]:
        return Move("settle", why="the key store wrapped under another version than was minted")
    return Move("install", memo={"ciphertext": result["ciphertext"]})


def _installed(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    ids = {side: dict(state.result(side)["key_ids"]) for side in SIDES}
    checks = {side: dict(state.result(side)["checks"]) for side in SIDES}
    return Move("compare", memo={"key_ids": ids, "checks": checks})


def _compared(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
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


def _destroyed(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    return Move("baseline", memo=_gone(state))


def _gone(state: Rotation) -> dict[str, Any]:
    proof = dict(state.result("kms")) if "kms" in state.outcomes else None
    return {"destroyed": True, "ciphertext": None, "proof": proof}


def _baseline(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Read-back of the install: an end that answered "done" and changed nothing is found here."""
    ends = read_ends(state)
    if _secy(ends) != state.memo["secy"]:
        return _rekeyed("another SecY lifetime before the switch")
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


def _selected(side: Side) -> Any:
    def judge(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
        if state.result(side)["encoding_an"] != state.memo["an"]:
            return Move("assess", why=f"end {side}: transmit did not move to the new AN")
        return Move(f"look {other(side)}")

    return judge


def _look(side: Side) -> Any:
    """Errors of an old key that `side` cannot receive must not count against the new one: look after the switch."""

    def commands(state: Rotation, _link: LinkSpec) -> tuple[Command, ...]:
        return () if state.memo["paired"][other(side)] else (Command(side, "read", side),)

    return commands


def _looked(side: Side) -> Any:
    def judge(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
        if side not in state.outcomes:
            return Move(f"probe {other(side)}")
        end = EndpointState.from_json(state.result(side)["state"])
        before = {**state.memo["before"], side: _counters(end.counters)}
        return Move(f"probe {other(side)}", memo={"before": before})

    return judge


def _probed(side: Side) -> Any:
    def judge(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
        return Move(f"verify {other(side)}", memo={"probes": list(state.result(side)["nonces"])})

    return judge


def _verified(side: Side) -> Any:
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
            return Move(again_ns=_SOON_NS, why=verdict.why)
        if verdict.outcome != "verified":
            return _back(state, f"{other(side)} to {side}: {verdict.why}")
        return Move("select b" if side == "b" else "confirm", why=verdict.why, memo={"probes": None})

    return judge


def _confirmed(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    if any(state.result(side)["revert_pending"] for side in SIDES):
        return Move("assess", why="an end did not disarm its revert timer")
    return Move("overlap", memo={"committed": True})


def _overlap(state: Rotation, link: LinkSpec, now_ns: int) -> Move | None:
    left = state.entered_ns + link.profile.overlap_ns - now_ns
    return Move("drain") if left <= 0 else None


def _drain(state: Rotation, link: LinkSpec, now_ns: int) -> Move:
    ends = read_ends(state)
    if _secy(ends) != state.memo["secy"]:
        return _rekeyed("another SecY lifetime in the overlap window")
    if not _both_new(state, ends):
        return Move("assess", why="an end no longer transmits under the new key")
    done, seen = drained(state.memo, ends, link.profile.drain_silence_ns, now_ns)
    if not done:
        return Move(again_ns=_SOON_NS, memo={"seen": seen})
    return Move("retire tx", memo={"seen": None, "remove": leftovers(ends, state.memo["key_ids"])})


def _proof(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Read-back of the absence of every other key, and of the new one in use at both ends."""
    ends = read_ends(state)
    if _secy(ends) != state.memo["secy"]:
        return _rekeyed("another SecY lifetime while retiring")
    if not _both_new(state, ends):
        return Move("assess", why="an end no longer transmits under the new key")
    remove = leftovers(ends, state.memo["key_ids"])
    if remove:
        return Move("retire tx", memo={"remove": remove}, why="read-back still shows an old key")
    return Move(end="complete")


def _both_new(state: Rotation, ends: Ends) -> bool:
    ids = state.memo["key_ids"]
    found = {side: where(ends[side]) for side in SIDES}
    return all(sa is not None and sa["key_id"] == ids[side]["tx"] for side, sa in found.items())


# --- judges: back -------------------------------------------------------------------------------------------


def _back(state: Rotation, why: str) -> Move:
    """Bring transmit back to the old AN at once; its packet numbers continue. Then look at both ends."""
    sides = [side for side in SIDES if state.memo["old"][side] is not None]
    return Move("revert" if sides else "assess", why=why, memo={"revert": sides})


def _rekeyed(why: str) -> Move:
    return Move("settle", why=why, memo={"after": "rekeyed"})


def _assess(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """Both ends have been read after every earlier order was fenced off: decide from what is."""
    ends = read_ends(state)
    # 1. A dead SecY took its keys along: no rollback can bring them back.
    if _secy(ends) != state.memo["secy"]:
        return _rekeyed("the SecY of an end began anew")
    # 2. Past the commit the only way is forward.
    committed = state.memo.get("committed") or _settled_new(state, ends)
    if committed and _both_new(state, ends):
        return Move("drain", memo={"committed": True, "seen": None})
    if committed:
        return Move(again_ns=_REREAD_NS, why="committed, but an end does not transmit under the new key")
    # 3. A watchdog that may still act makes the transmit key unknown.
    moved = [side for side in SIDES if not _on_old(state, ends, side)]
    can = [side for side in moved if state.memo["old"][side] is not None]
    if can:
        return Move("revert", memo={"revert": can})
    if any(ends[side].revert_pending for side in SIDES):
        return Move(again_ns=_SOON_NS, why="a revert timer is still running")
    # 4. Both ends transmit as before: what this rotation installed can go.
    ids = _known_ids(state, ends)
    return Move("settle") if ids is None else Move("abandon", memo={"key_ids": ids})


def _settled_new(state: Rotation, ends: Ends) -> bool:
    """Confirms were applied though an acknowledgement was lost: read-back proves both are disarmed."""
    asked = any(p.step == "confirm" for p in state.trail)
    return asked and _both_new(state, ends) and not any(ends[side].revert_pending for side in SIDES)


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


def _abandoned(_state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    return Move("readback", memo={"looks": 0})


def _readback(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    """The burnt key's AN is free only when both deletes are read back."""
    ends = read_ends(state)
    if _secy(ends) != state.memo["secy"]:
        return _rekeyed("the SecY of an end began anew")
    looks = state.memo.get("looks", 0) + 1
    if not leftovers_new(state, ends) or (looks >= RESIDUE and _only_residue(state, ends)):
        return Move("settle", memo={"looks": None})
    if looks >= RESIDUE:
        return Move("assess", why="read-back still shows the abandoned key", memo={"looks": None})
    return Move(again_ns=_SOON_NS, memo={"looks": looks})


def _only_residue(state: Rotation, ends: Ends) -> bool:
    """A first keying may end with a transmit key in use that no one receives: closed, and replaced next."""
    return all(state.memo["old"][side] is None for side in SIDES) and not any(
        sa.key_id in set(state.memo["key_ids"][side].values()) and not sa.in_use
        for side in SIDES
        for sa in (*ends[side].tx, *ends[side].rx)
    )


def _reverted(_state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    return Move("assess")


def _discarded(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    return Move("assess", memo=_gone(state))


def _settled(state: Rotation, _link: LinkSpec, _now_ns: int) -> Move:
    end: End = "rekeyed" if state.memo.get("after") == "rekeyed" else "rolled back"
    return Move(end=end, memo=_gone(state) if "kms" in state.outcomes else {"ciphertext": None})


# --- exits --------------------------------------------------------------------------------------------------


def _not_started(_state: Rotation, _link: LinkSpec) -> Move:
    return Move(end="not started")


def _to(step: str) -> Any:
    def exit_(_state: Rotation, _link: LinkSpec) -> Move:
        return Move(step)

    return exit_


def _revert_first(state: Rotation, _link: LinkSpec) -> Move:
    return _back(state, "")


def _again(wait_ns: int) -> Any:
    def exit_(_state: Rotation, _link: LinkSpec) -> Move:
        return Move(again_ns=wait_ns)

    return exit_


def _no_deadline(_link: LinkSpec) -> int:
    return _FOREVER


def _overlap_time(link: LinkSpec) -> int:
    return link.profile.overlap_ns + link.profile.step_deadline_ns


TABLE: Final[Table] = {
    "survey": Step(_reads, _survey, _again(_REREAD_NS), _not_started),
    "tidy tx": Step(_remove("tx"), lambda *_: Move("tidy rx"), _not_started, _not_started),
    "tidy rx": Step(_remove("rx"), lambda *_: Move("survey"), _not_started, _not_started),
    "prepare": Step(_prepare, _prepared, _not_started, _not_started),
    "mint": Step(_mint, _minted, _not_started, _not_started),
    "wrap": Step(_wrap, _wrapped, _to("settle"), _to("settle")),
    "install": Step(_install, _installed, _to("discard"), _to("discard")),
    "compare": Step(_nothing, _compared, _to("discard"), _to("discard")),
    "destroy": Step(_destroy, _destroyed, _to("assess"), _to("assess")),
    "baseline": Step(_reads, _baseline, _to("assess"), _to("assess")),
    "select a": Step(_select("a"), _selected("a"), _revert_first, _revert_first),
    "look b": Step(_look("b"), _looked("b"), _revert_first, _revert_first),
    "probe a": Step(_probe("a"), _probed("a"), _revert_first, _revert_first),
    "verify b": Step(_verify("b"), _verified("b"), _revert_first, _revert_first),
    "select b": Step(_select("b"), _selected("b"), _revert_first, _revert_first),
    "look a": Step(_look("a"), _looked("a"), _revert_first, _revert_first),
    "probe b": Step(_probe("b"), _probed("b"), _revert_first, _revert_first),
    "verify a": Step(_verify("a"), _verified("a"), _revert_first, _revert_first),
    "confirm": Step(_confirm, _confirmed, _to("assess"), _to("assess")),
    "overlap": Step(_nothing, _overlap, _to("assess"), None, forward=False, deadline_ns=_overlap_time),
    "drain": Step(_reads, _drain, _to("assess"), _to("assess"), forward=False),
    "retire tx": Step(
        _remove("tx"), lambda *_: Move("retire rx"), _to("proof"), _to("assess"), forward=False
    ),
    "retire rx": Step(_remove("rx"), lambda *_: Move("proof"), _to("proof"), _to("assess"), forward=False),
    "proof": Step(_reads, _proof, _to("assess"), _to("assess"), forward=False),
    "discard": Step(_destroy, _discarded, _to("assess"), _to("assess"), forward=False),
    "revert": Step(_revert, _reverted, _to("assess"), _to("assess"), forward=False),
    "assess": Step(_reads, _assess, _again(_REREAD_NS), _to(PARKED), forward=False),
    PARKED: Step(
        _reads,
        _assess,
        _again(_REREAD_NS),
        None,
        forward=False,
        alarm="parked: an end cannot be read, both keys stay installed",
        deadline_ns=lambda _link: 0,
    ),
    "abandon": Step(_abandon, _abandoned, _to("readback"), _to("assess"), forward=False),
    "readback": Step(_reads, _readback, _to("assess"), _to("assess"), forward=False),
    "settle": Step(
        _destroy,
        _settled,
        _again(_REREAD_NS),
        None,
        forward=False,
        alarm="the key store has not destroyed the wrapping key yet",
    ),
}
