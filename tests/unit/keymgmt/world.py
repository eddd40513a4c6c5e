"""A modelled link for the rotation machine: two ends with agents, a key store, a wire, a conductor that may die.

Operations take three steps (journalled, applied, acknowledged) with anything possible between two of them. The
agents obey their contract: fence by sequence, stored results, nonces in memory only, burnt key ids, a revert
timer that outlives the agent. Left out: real cryptography, tokens of several holders (see test_lease), frames
in flight, MKA. `Unsafe` is raised at the very event that breaks a safety invariant of rotation.md section 7.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from evidence.canonical import canonical
from keymgmt import rotation_sak
from keymgmt.model import EndpointSpec, LinkSpec, ProfileSpec, other
from keymgmt.operations import PARAMS, RESULTS, EndpointState, OpKind, SaState, take
from keymgmt.rotation import Outcome, Rotation, begin, outstanding, tick, with_outcome

SECOND = 1_000_000_000
A, B = "a", "b"


class Unsafe(AssertionError):  # noqa: N818
    """A safety invariant is broken."""


SHORT = {"overlap_ns": SECOND, "step_deadline_ns": 5 * SECOND, "revert_after_ns": 10 * SECOND}


def make_link(**profile: Any) -> LinkSpec:
    """One link; times are short, because every modelled quarter of a second costs real time."""
    return LinkSpec(
        "l1",
        ProfileSpec("p", **{**SHORT, **profile}),
        EndpointSpec("a", "site-1", "0200000000000001", "l1-a"),
        EndpointSpec("b", "site-2", "0200000000000002", "l1-b"),
    )


def digest(*parts: object) -> str:
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:32]


@dataclass
class KeyStore:
    """Transit as far as the protocol relies on it."""

    latest: int = 1
    minimum: int = 1
    available: int = 1
    up: bool = True
    wraps: dict[str, tuple[int, str, str]] = field(
        default_factory=dict
    )  # ciphertext -> version, ad, data key
    destroyed: set[int] = field(default_factory=set)

    def mint(self) -> int:
        self.latest += 1
        return self.latest

    def wrap(self, ad: Any) -> tuple[str, int]:
        data_key = f"dk{len(self.wraps)}"
        ciphertext = f"vault:v{self.latest}:{data_key}"
        self.wraps[ciphertext] = (self.latest, canonical(ad).decode(), data_key)
        return ciphertext, self.latest

    def destroy(self, version: int) -> None:
        self.latest = max(self.latest, version + 1)
        self.minimum = max(self.minimum, version + 1)
        self.available = max(self.available, version + 1)
        self.destroyed |= set(range(1, version + 1))

    def decrypt(self, ciphertext: str, ad: Any) -> str | None:
        version, bound, data_key = self.wraps[ciphertext]
        if version < max(self.minimum, self.available) or bound != canonical(ad).decode():
            return None
        return data_key

    def lower_minima(self) -> None:
        """A stale conductor, or whoever has its rights: allowed down to what was trimmed."""
        self.minimum = self.available


@dataclass
class Sa:
    key: str
    pn: int = 1
    ok: int = 0
    bad: int = 0


class End:
    """One end: a SecY with its watchdog, and the agent in front of it."""

    def __init__(self, side: str, world: World) -> None:
        self.side, self.world = side, world
        self.secy = 1
        self.tx: dict[int, Sa] = {}
        self.rx: dict[int, Sa] = {}
        self.encoding: int | None = None
        self.revert: tuple[int | None] | None = None
        self.secy_bad = self.secy_ok = 0
        self.up = True
        self.nonces: dict[str, str] = {}
        self.nonce_count = 0
        self.burnt: list[str] = []
        self.seq = 0
        self.acks: dict[str, tuple[str, dict[str, Any], str]] = {}
        self.seen: dict[str, list[str]] = {}
        self.wrong_key = False
        self.wrong_check = False
        self.lies: set[str] = set()

    # --- the SecY

    def send(self, peer: End, count: int = 1) -> None:
        """User frames in one direction; every (key, PN) pair may be used once in the world."""
        if self.encoding is None or self.encoding not in self.tx:
            return
        sa = self.tx[self.encoding]
        for _ in range(count):
            pair = (sa.key, sa.pn)
            if pair in self.world.used:
                raise Unsafe(f"(key, PN) pair used twice at {self.side}: {pair}")
            self.world.used.add(pair)
            sa.pn += 1
            self.world.sent += 1
            peer.receive(self.encoding, sa.key, self)

    def receive(self, an: int, key: str, sender: End) -> None:
        sa = self.rx.get(an)
        if sa is not None and sa.key == key and not sender.wrong_key_now():
            sa.ok += 1
            self.secy_ok += 1
            return
        self.secy_bad += 1
        if sa is not None:
            sa.bad += 1
        self.world.lost[self.side] += 1

    def wrong_key_now(self) -> bool:
        """Fault (b) of the demo: hardware holds another key than the one reported, since the last install."""
        return self.wrong_key and self.encoding == self.world.fault_an

    def die(self) -> None:
        """The SecY ends and begins anew: all its keys are gone."""
        self.secy += 1
        self.tx, self.rx, self.encoding, self.revert = {}, {}, None, None
        self.seen = {}
        self.secy_bad = self.secy_ok = 0

    def fire(self) -> None:
        """The watchdog's time is over: the old AN is selected again, its PN continuing."""
        if self.revert is not None:
            self.encoding, self.revert = self.revert[0], None

    def restart_agent(self) -> None:
        self.nonces = {}

    # --- the agent

    def run(self, op: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
        if op["op_id"] in self.acks:
            return self.acks[op["op_id"]]
        if op["op_seq"] <= self.seq:
            return "refused", {"last": self.seq}, "stale_seq"
        self.seq = op["op_seq"]
        params = take(json.loads(json.dumps(op["params"])), PARAMS[OpKind(op["kind"])], op["kind"])
        handler = getattr(self, "do_" + op["kind"])
        try:
            result = handler(op["rotation"], params)
            take(json.loads(json.dumps(result)), RESULTS[OpKind(op["kind"])], op["kind"])
            answer = ("done", result, "")
        except Refusal as no:
            answer = ("refused", {}, str(no))
        self.acks[op["op_id"]] = answer
        return answer

    def counters(self) -> dict[str, str]:
        found = {"rxsc.InPktsNotValid": self.secy_bad, "rxsc.InOctetsDecrypted": 64 * self.secy_ok}
        for an, sa in self.rx.items():
            found |= {f"rxsa.{an}.InPktsOK": sa.ok, f"rxsa.{an}.InPktsNotValid": sa.bad}
        return {name: str(value) for name, value in found.items()}

    def do_read(self, _rotation: str, _params: Any) -> dict[str, Any]:
        link = self.world.link
        state = EndpointState(
            boot_id="boot",
            secy_id=f"{self.side}{self.secy}",
            protect=True,
            encrypt=True,
            validate="strict",
            tx_sci=link.end(self.side).sci,
            encoding_an=self.encoding if self.encoding in self.tx else None,
            tx=tuple(SaState(an, sa.key, sa.pn, an == self.encoding) for an, sa in self.tx.items()),
            rx_sci=link.peer(self.side).sci,
            rx=tuple(SaState(an, sa.key, 1, True) for an, sa in self.rx.items()),
            burnt=tuple(self.burnt[-8:]),
            path="open",
            revert_pending=self.revert is not None,
            counters={},
        ).to_json()
        return {"state": state | {"counters": self.counters()}}

    def do_prepare(self, rotation: str, params: Any) -> dict[str, Any]:
        if params["an"] in self.tx or params["an"] in self.rx:
            raise Refusal("an_in_use")
        self.nonce_count += 1
        self.nonces[rotation] = digest("nonce", self.side, self.nonce_count)
        return {"nonce": self.nonces[rotation]}

    def do_install(self, rotation: str, params: Any) -> dict[str, Any]:
        mine = self.nonces.get(rotation)
        if mine is None or params["ad"][f"nonce_{self.side}"] != mine:
            raise Refusal("nonce_unknown")
        if not self.world.kms.up:
            raise Refusal("custody_unavailable")
        data_key = self.world.kms.decrypt(params["ciphertext"], params["ad"])
        if data_key is None:
            raise Refusal("custody_refused")
        del self.nonces[rotation]
        an = params["an"]
        keys = {"tx": digest(data_key, self.side, an), "rx": digest(data_key, other(self.side), an)}
        self.install("rx", an, keys["rx"])
        if "install" not in self.lies:
            self.install("tx", an, keys["tx"])
        self.world.fault_an = an
        salt = "fault" if self.wrong_check else ""
        checks = {"tx": digest("check", keys["tx"], salt), "rx": digest("check", keys["rx"], salt)}
        return {"key_ids": keys, "checks": checks, "counters": self.counters()}

    def install(self, which: str, an: int, key: str) -> None:
        """Into hardware: never an occupied AN, never a key twice at one end, whatever the SecY lifetime."""
        table = self.tx if which == "tx" else self.rx
        if an in table:
            raise Refusal("an_in_use")
        if (self.side, which, key) in self.world.installed:
            raise Unsafe(f"key installed twice at {self.side}")
        self.world.installed.add((self.side, which, key))
        self.burnt.append(key)
        table[an] = Sa(key)

    def do_select_tx(self, _rotation: str, params: Any) -> dict[str, Any]:
        sa = self.tx.get(params["an"])
        if sa is None or sa.key != params["key_id"]:
            raise Refusal("no_such_sa")
        peer = self.world.ends[other(self.side)]
        heard = peer.rx.get(params["an"])
        if (heard is None or heard.key != sa.key) and not self.world.died:
            raise Unsafe(f"{self.side} transmits before the peer receives")
        if self.revert is not None:
            raise Refusal("EBUSY")
        was = self.encoding
        if was != params["an"]:
            self.revert = (was,)
            self.encoding = params["an"]
        return {"encoding_an": self.encoding, "was": was}

    def do_probe(self, _rotation: str, params: Any) -> dict[str, Any]:
        if self.encoding != params["an"]:
            raise Refusal("an_not_in_use")
        peer = self.world.ends[other(self.side)]
        nonces = [digest("probe", params["probe_id"], i)[:16] for i in range(params["count"])]
        before = peer.rx[params["an"]].ok if params["an"] in peer.rx else 0
        self.send(peer, len(nonces))
        after = peer.rx[params["an"]].ok if params["an"] in peer.rx else 0
        peer.seen[params["probe_id"]] = nonces[: after - before]
        return {"sent": len(nonces), "nonces": nonces, "next_pn": "1", "counters": self.counters()}

    def do_verify(self, _rotation: str, params: Any) -> dict[str, Any]:
        if params["an"] not in self.rx:
            raise Refusal("no_such_sa")
        nonces = self.seen.get(params["probe_id"], [])
        return {"seen": len(nonces), "nonces": nonces, "counters": self.counters()}

    def do_confirm(self, _rotation: str, params: Any) -> dict[str, Any]:
        if self.encoding != params["an"]:
            raise Refusal("reverted")
        self.revert = None
        return {"revert_pending": False}

    def do_revert_tx(self, _rotation: str, params: Any) -> dict[str, Any]:
        sa = self.tx.get(params["an"])
        if sa is None or sa.key != params["key_id"]:
            raise Refusal("no_such_sa")
        self.encoding, self.revert = params["an"], None
        return {"encoding_an": self.encoding}

    def do_retire_tx(self, _rotation: str, params: Any) -> dict[str, Any]:
        sa = self.tx.get(params["an"])
        if sa is None or sa.key != params["key_id"]:
            return {"finals": {}}
        if self.encoding == params["an"]:
            raise Refusal("EBUSY")
        if self.revert is not None and self.revert[0] == params["an"]:
            raise Unsafe(f"{self.side} loses the key that its revert timer may select")
        self.world.check_removal(self.side, "tx", params["an"])
        del self.tx[params["an"]]
        return {"finals": {}}

    def do_retire_rx(self, _rotation: str, params: Any) -> dict[str, Any]:
        sa = self.rx.get(params["an"])
        if sa is None or sa.key != params["key_id"]:
            return {"finals": {}}
        self.world.check_removal(self.side, "rx", params["an"])
        del self.rx[params["an"]]
        return {"finals": {}}

    def do_abandon(self, _rotation: str, params: Any) -> dict[str, Any]:
        ids, deleted = params["key_ids"], []
        for an in [an for an, sa in self.rx.items() if sa.key == ids["rx"]]:
            self.world.check_removal(self.side, "rx", an)
            del self.rx[an]
            deleted.append("rx")
        for an in [an for an, sa in self.tx.items() if sa.key == ids["tx"] and an != self.encoding]:
            del self.tx[an]
            deleted.append("tx")
        return {"deleted": deleted}


class Refusal(Exception):  # noqa: N818
    pass


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
