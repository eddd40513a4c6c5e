"""A modelled link for the rotation machine: two ends, a key store, a wire, a conductor that may die.

Operations take three steps (journalled, applied, acknowledged) with anything possible between two of them. Left out
besides what `modelled_ends` leaves out: frames in flight, several links. `Unsafe` is raised at the very event that
breaks a safety invariant of rotation.md section 7.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from modelled_ends import SECOND, A, B, End, KeyStore, Unsafe, digest, make_link

from evidence.canonical import canonical
from keymgmt import rotation_sak
from keymgmt.model import LinkSpec, other
from keymgmt.rotation import Outcome, Rotation, begin, outstanding, tick, with_outcome


class World:
    """Link, key store, wire, journal and a conductor that keeps nothing outside the journal."""

    def __init__(self, link: LinkSpec | None = None, table: Any = rotation_sak.TABLE) -> None:
        self.link = link or make_link()
        self.table = table
        self.kms = KeyStore()
        self.used: set[tuple[str, int]] = set()
        self.installed: set[tuple[str, str, str]] = set()
        self.lost = {A: 0, B: 0}
        self.sent = 0
        self.died = False
        self.fault_an: int | None = None
        self.ends = {side: End(side, self) for side in (A, B)}
        self.now = 1_000 * SECOND
        self.journal: str | None = None
        self.ops: dict[str, dict[str, Any]] = {}
        self.applied: list[tuple[str, str, tuple[str, dict[str, Any], str]]] = []
        self.op_seq = 0
        self.count = 0
        self.ended: list[Rotation] = []
        self.history: list[str] = []

    # --- safety at removal

    def check_removal(self, side: str, which: str, an: int) -> None:
        """No key goes while an end's transmit key is not final, and never one the peer transmits under."""
        peer = self.ends[other(side)]
        first = all(end.encoding is None or self.died for end in self.ends.values())
        if (
            which == "rx"
            and peer.encoding == an
            and peer.tx.get(an)
            and not self.died
            and not self._unkeyed()
            and peer.tx[an].key == self.ends[side].rx[an].key
        ):
            raise Unsafe(f"{side} removes the receive key that its peer transmits under")
        timers = [end for end in self.ends.values() if end.revert is not None]
        if timers and not first and not self._unkeyed():
            raise Unsafe("a key is removed while a revert timer may still change the transmit key")

    def _unkeyed(self) -> bool:
        """No working pair before this rotation: a first keying that fails stays closed."""
        state = self.state()
        return state is not None and not any((state.memo.get("paired") or {"": False}).values())

    # --- the conductor

    def state(self) -> Rotation | None:
        return None if self.journal is None else self._read_back

    def _store(self, state: Rotation) -> None:
        """Every state goes through the journal's form, so that a conductor may die at any moment."""
        self.journal = canonical(state.to_json()).decode()
        self._read_back = Rotation.from_json(json.loads(self.journal))

    def start(self, reason: str = "test") -> None:
        assert self.journal is None
        self.count += 1
        state = begin(
            self.link,
            kind="sak",
            first=rotation_sak.FIRST,
            rotation=digest("rotation", self.count),
            reason=reason,
            now_ns=self.now,
        )
        self._store(state)

    def conduct(self) -> bool:
        """One pass of the conductor; True when something changed."""
        state = self.state()
        if state is None:
            return False
        after = self._absorb(state)
        if after is state:
            after = self._custody(state)
        if after.serial != state.serial:
            for op in self.ops.values():
                op["status"] = "cancelled" if op["status"] == "pending" else op["status"]
        self._order(after)
        if after is not state:
            self.history.append(after.step)
            if after.end is not None:
                self.ended.append(after)
                self.journal = None
            else:
                self._store(after)
            return True
        return False

    def _absorb(self, state: Rotation) -> Rotation:
        after = state
        for command in outstanding(state, self.link, self.table, self.now):
            op = self.ops.get(state.command_id(command.slot))
            if op is None or op["status"] in ("pending", "cancelled"):
                continue
            outcome = Outcome(op["status"], op["result"], op["why"])
            after = with_outcome(after, self.link, self.table, command.slot, outcome, self.now)
            if after.serial != state.serial:
                return after
        return tick(after, self.link, self.table, self.now)

    def _custody(self, state: Rotation) -> Rotation:
        command = next(
            (c for c in outstanding(state, self.link, self.table, self.now) if c.side is None), None
        )
        if command is None or not self.kms.up:
            return state
        if command.kind == "mint":
            result: dict[str, Any] = {"version": self.kms.mint()}
        elif command.kind == "wrap":
            ciphertext, version = self.kms.wrap(command.params["ad"])
            result = {"ciphertext": ciphertext, "version": version}
        else:
            version = command.params["version"]
            self.kms.destroy(version)
            result = {"version": version, "min_available_version": self.kms.available, "latest_version": 9}
            self.captured_key_is_dead(version)
        return with_outcome(state, self.link, self.table, command.slot, Outcome("done", result), self.now)

    def captured_key_is_dead(self, version: int) -> None:
        """Whoever copied a wrap and may lower the minima again cannot open it any more."""
        kms = replace(self.kms)
        kms.lower_minima()
        for ciphertext, (wrapped, ad, _key) in kms.wraps.items():
            if wrapped <= version and kms.decrypt(ciphertext, json.loads(ad)) is not None:
                raise Unsafe(f"version {version} counts as destroyed and still decrypts")

    def _order(self, state: Rotation) -> None:
        for command in outstanding(state, self.link, self.table, self.now):
            op_id = state.command_id(command.slot)
            if command.side is None or op_id in self.ops:
                continue
            self.op_seq += 1
            self.ops[op_id] = {
                "op_id": op_id,
                "side": command.side,
                "kind": command.kind,
                "params": json.loads(json.dumps(dict(command.params))),
                "rotation": state.rotation,
                "op_seq": self.op_seq,
                "status": "pending",
            }

    # --- the wire between journal and agents

    def deliver(self, side: str) -> bool:
        """Hand the oldest pending operation to its agent, which acts; its answer is on the way."""
        if not self.ends[side].up:
            return False
        waiting = [op for op in self.ops.values() if op["side"] == side and op["status"] == "pending"]
        on_way = {op_id for op_id, _side, _answer in self.applied}
        for op in sorted(waiting, key=lambda op: op["op_seq"]):
            if op["op_id"] not in on_way:
                self.applied.append((op["op_id"], side, self.ends[side].run(op)))
                return True
        return False

    def acknowledge(self) -> bool:
        """The oldest answer on the way reaches the journal."""
        if not self.applied:
            return False
        op_id, _side, (status, result, why) = self.applied.pop(0)
        op = self.ops[op_id]
        if op["status"] == "pending":
            op |= {"status": status, "result": json.loads(json.dumps(result)), "why": why}
        return True

    def lose_ack(self) -> None:
        """An answer is lost: the operation is delivered again, and the agent repeats its stored result."""
        if self.applied:
            self.applied.pop(0)

    def traffic(self, count: int = 1) -> None:
        self.ends[A].send(self.ends[B], count)
        self.ends[B].send(self.ends[A], count)

    def pass_time(self, nanoseconds: int) -> None:
        self.now += nanoseconds

    # --- whole runs

    def turn(self, *, traffic: bool = True) -> None:
        """One fair round: everything that can happen happens once."""
        for side in (A, B):
            self.deliver(side)
        while self.acknowledge():
            pass
        if traffic:
            self.traffic()
        self.now += SECOND // 4
        self.conduct()

    def finish(self, turns: int = 4000) -> Rotation:
        """Under fairness (agents up, key store up, timers fire) every rotation ends lawfully."""
        self.kms.up = True
        for end in self.ends.values():
            end.up = True
        fired_at = self.now + self.link.profile.revert_after_ns
        for _ in range(turns):
            self.turn()
            if self.now > fired_at:
                for end in self.ends.values():
                    end.fire()
                fired_at = self.now + self.link.profile.revert_after_ns
            if self.journal is None:
                return self.ended[-1]
        state = self.state()
        raise AssertionError(f"no end: {state.step if state else None}: {self.history[-12:]}")

    def keyed(self) -> World:
        """First keying done."""
        self.start("first keying")
        end = self.finish()
        assert end.end == "complete", end.why
        return self
