"""Two modelled ends and their key store: SecY, watchdog, agent and transit as far as the protocol relies on them.

The agents obey their contract: fence by sequence, stored results, nonces in memory only, burnt key ids, a revert
timer that outlives the agent. Left out: real cryptography, tokens of several holders (see test_lease), MKA.
`Unsafe` is raised at the very event that breaks a safety invariant of rotation.md section 7; what two ends break
together is asked of the surroundings (`world.World`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evidence.canonical import canonical
from keymgmt.checks import take
from keymgmt.endstate import EndpointState, SaState
from keymgmt.model import EndpointSpec, LinkSpec, ProfileSpec, other
from keymgmt.operations import PARAMS, RESULTS, OpKind

if TYPE_CHECKING:
    from world import World

SECOND = 1_000_000_000
A, B = "a", "b"


class Unsafe(AssertionError):  # noqa: N818
    """A safety invariant is broken."""


class Refusal(Exception):  # noqa: N818
    pass


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
