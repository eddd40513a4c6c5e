"""The control protocol between one agent and its data plane: one JSON datagram a command, one an answer.

Unix SEQPACKET, same user only (checked by SO_PEERCRED). This is the only place where SAKs pass between two
processes; no answer ever holds one. Answers are {"ok": {...}} or {"error": {"code", "detail"}}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from keymgmt.checks import (
    Check,
    encode_counters,
    is_an,
    is_check,
    is_count,
    is_hex,
    is_key_id,
    is_map,
    is_nonce,
    is_sci,
    is_str,
    is_u64,
    object_of,
    take,
)
from keymgmt.drivers import SaInstall
from keymgmt.drivers.software_plane import Plane
from keymgmt.endstate import Reading, SaState
from keymgmt.errors import DriverRefused, MessageRefused
from keymgmt.processes import where

FAILED: Final = "EIO"
Command = Callable[[Plane, Mapping[str, Any], int], Mapping[str, Any]]


def answer(plane: Plane, message: bytes, now_ns: int) -> bytes:
    """Carry one command out and return the answer's octets. Never raises: keys end with the process.

    EINVAL is a message that is no command; EIO is a command that was well-formed and failed on a bug of ours,
    with whatever it had done by then. Neither quotes anything, for a command may hold a key.
    """
    try:
        name, doc = _decoded(message)
    except (ValueError, RecursionError, MessageRefused):
        reply: dict[str, Any] = {"error": {"code": "EINVAL", "detail": "malformed command"}}
    else:
        reply = _carried_out(plane, name, doc, now_ns)
    return json.dumps(reply, separators=(",", ":")).encode()


def _decoded(message: bytes) -> tuple[str, dict[str, Any]]:
    """Return the name and the checked fields of a command."""
    doc = json.loads(message)
    name = doc.pop("cmd", None) if isinstance(doc, dict) else None
    if not isinstance(name, str) or name not in COMMANDS:
        raise MessageRefused("command: unknown")
    return name, take(doc, COMMANDS[name][1], "command")


def _carried_out(plane: Plane, name: str, doc: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
    try:
        if plane.faults is not None:
            plane.faults.delay()
        plane.watch(now_ns)
        return {"ok": dict(COMMANDS[name][0](plane, doc, now_ns))}
    except DriverRefused as no:
        return {"error": {"code": no.code, "detail": str(no)}}
    except Exception as bug:
        print(f"command {name} failed: {where(bug)}", file=sys.stderr, flush=True)
        return {"error": {"code": FAILED, "detail": "the command failed in the data plane: see its log"}}


def sa_to_json(sa: SaInstall) -> dict[str, Any]:
    """Return an SA for the control socket; the only coding of a SAK there is."""
    return {
        "an": sa.an,
        "cipher": sa.cipher,
        "sci": sa.sci,
        "ssci": sa.ssci,
        "key_id": sa.key_id,
        "check": sa.check,
        "sak": sa.sak.hex(),
        "salt": sa.salt.hex(),
    }


def _sa_from_json(doc: Mapping[str, Any]) -> SaInstall:
    fields = dict(doc)
    sak, salt = bytes.fromhex(fields.pop("sak")), bytes.fromhex(fields.pop("salt"))
    return SaInstall(**fields, sak=sak, salt=salt)


def _read(plane: Plane, _doc: Mapping[str, Any], now_ns: int) -> Mapping[str, Any]:
    secy = plane.secy
    reading = Reading(
        secy_id=secy.secy_id,
        protect=secy.protect,
        encrypt=secy.encrypt,
        validate=secy.validate,
        tx_sci=secy.config.sci,
        encoding_an=secy.encoding_an,
        tx=tuple(
            SaState(an, sa.key_id, sa.next_pn, an == secy.encoding_an) for an, sa in sorted(secy.tx.items())
        ),
        rx_sci=secy.config.peer_sci,
        rx=tuple(SaState(an, sa.key_id, sa.replay.lowest, True) for an, sa in sorted(secy.rx.items())),
        path=plane.path(now_ns),
        revert_pending=plane.revert is not None,
        counters=plane.counters(),
        faults=plane.faults.active() if plane.faults is not None else (),
    )
    return reading.to_json()


def _counters(plane: Plane, _doc: Mapping[str, Any], _now_ns: int) -> Mapping[str, Any]:
    return {"counters": encode_counters(plane.counters())}


def _install(plane: Plane, doc: Mapping[str, Any], direction: str) -> Mapping[str, Any]:
    if doc["secy_id"] != plane.secy.secy_id:
        raise DriverRefused("ESTALE", "the key was meant for another SecY lifetime")
    sa, faults = _sa_from_json(doc["sa"]), plane.faults
    if faults is not None:
        sa = faults.key(sa, direction)
    check = plane.secy.add_tx(sa) if direction == "tx" else plane.secy.add_rx(sa)
    return {"check": check if faults is None else faults.check(check)}


def _select(plane: Plane, doc: Mapping[str, Any], now_ns: int) -> Mapping[str, Any]:
    was = plane.select(doc["an"], doc["key_id"], doc["revert_after_ms"], now_ns)
    return {"encoding_an": doc["an"], "was": was}


def _confirm(plane: Plane, doc: Mapping[str, Any], _now_ns: int) -> Mapping[str, Any]:
    plane.confirm(doc["an"])
    return {"revert_pending": plane.revert is not None}


def _retire_tx(plane: Plane, doc: Mapping[str, Any], _now_ns: int) -> Mapping[str, Any]:
    plane.refuse_retire(doc["an"])
    return {"finals": encode_counters(plane.secy.delete_tx(doc["an"], doc["key_id"]))}


def _probe(plane: Plane, doc: Mapping[str, Any], _now_ns: int) -> Mapping[str, Any]:
    nonces = plane.probe(doc["count"], doc["probe_id"])
    an = plane.secy.encoding_an
    next_pn = plane.secy.tx[an].next_pn if an is not None else 0
    return {"nonces": nonces, "next_pn": str(next_pn)}


def _arm(plane: Plane, doc: Mapping[str, Any], now_ns: int) -> Mapping[str, Any]:
    plane.arm(int(doc["until_ns"]))
    return {"path": plane.path(now_ns)}


def _fault(plane: Plane, doc: Mapping[str, Any], _now_ns: int) -> Mapping[str, Any]:
    if plane.faults is None:
        raise DriverRefused("EPERM", "faults are not allowed here", fix="start it with --allow-faults")
    if doc["name"] == "clear":
        plane.faults.clear()
    else:
        plane.faults.inject(doc["name"], doc["params"])
    return {"faults": list(plane.faults.active())}


_SA: Final[Mapping[str, Check]] = {
    "an": is_an,
    "cipher": is_str,
    "sci": is_sci,
    "ssci": is_count,
    "key_id": is_key_id,
    "check": is_check,
    "sak": lambda v: is_hex(16)(v) or is_hex(32)(v),
    "salt": is_hex(12),
}
_INSTALL: Final[Mapping[str, Check]] = {"sa": object_of(_SA), "secy_id": is_nonce}
_NAMED: Final[Mapping[str, Check]] = {"an": is_an, "key_id": is_key_id}

COMMANDS: Final[Mapping[str, tuple[Command, Mapping[str, Check]]]] = {
    "read": (_read, {}),
    "counters": (_counters, {}),
    "guard": (lambda plane, _doc, _now: {"counters": encode_counters(plane.guard.counters())}, {}),
    "install_tx": (lambda plane, doc, _now: _install(plane, doc, "tx"), _INSTALL),
    "install_rx": (lambda plane, doc, _now: _install(plane, doc, "rx"), _INSTALL),
    "select": (_select, {**_NAMED, "revert_after_ms": is_count}),
    "confirm": (_confirm, {"an": is_an}),
    "revert": (
        lambda plane, doc, _now: {"encoding_an": plane.revert_tx(doc["an"], doc["key_id"])},
        _NAMED,
    ),
    "retire_tx": (_retire_tx, _NAMED),
    "retire_rx": (
        lambda plane, doc, _now: {"finals": encode_counters(plane.secy.delete_rx(doc["an"], doc["key_id"]))},
        _NAMED,
    ),
    "probe": (_probe, {"count": is_count, "probe_id": is_nonce}),
    "seen": (lambda plane, doc, _now: {"nonces": plane.seen(doc["probe_id"])}, {"probe_id": is_nonce}),
    "arm": (_arm, {"until_ns": is_u64}),
    "fault": (_fault, {"name": is_str, "params": is_map}),
}
