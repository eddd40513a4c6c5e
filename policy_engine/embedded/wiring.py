"""Who is joined to whom on loopback: ports and sockets of data planes, relay and traffic generator.

Kept in ``run/wiring.json`` for the life of a state folder, so that a data plane that outlived its `up`
is met at the same ports by the next one's relay and generator.

    generator -- controlled port -- data plane a -- wire -- relay -- wire -- data plane b -- ... generator
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evidence import durable
from keymgmt.drivers.software_ports import free_ports
from keymgmt.model import LinkSpec
from policy_engine.embedded.state import read_kept

HOST: Final = "127.0.0.1"
PORTS_PER_LINK: Final = 8
FRAME_OCTETS: Final = 512
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wiring:
    """Ports per link, the folder of the sockets, and the canary that must never show on a wire."""

    sockets: Path
    canary: str
    ports: Mapping[str, list[int]]

    def data_plane(self, spec: LinkSpec, side: str, *, allow_faults: bool) -> dict[str, Any]:
        """Configuration of one data plane (`keymgmt.drivers.software_dataplane`)."""
        end, peer = spec.end(side), spec.peer(side)
        user, dp_user, dp_wire, wire = self._ports(spec.name, side)
        return {
            "name": end.agent,
            "sci": end.sci,
            "peer_sci": peer.sci,
            "cipher": spec.profile.cipher,
            "replay_window": spec.profile.replay_window,
            "max_sa_per_sc": spec.profile.max_sa_per_sc,
            "controlled": _pair(dp_user, user),
            "wire": _pair(dp_wire, wire),
            "control": self.control(end.agent or ""),
            "allow_faults": allow_faults,
        }

    def relay(self, links: Iterable[str]) -> dict[str, Any]:
        """Configuration of the relay: the wire side of both ends of every link."""
        return {
            "control": str(self.sockets / "relay.sock"),
            "canary": self.canary,
            "links": [
                {"name": name} | {side: _pair(*self._ports(name, side)[3:1:-1]) for side in ("a", "b")}
                for name in links
            ],
        }

    def traffic(self, links: Iterable[str], *, sending: bool, fps: int) -> dict[str, Any]:
        """Configuration of the generator and sink: the user side of both ends of every link."""
        return {
            "control": str(self.sockets / "traffic.sock"),
            "canary": self.canary,
            "rate_fps": fps,
            "size": FRAME_OCTETS,
            "sending": sending,
            "links": [
                {"name": name} | {side: _pair(*self._ports(name, side)[:2]) for side in ("a", "b")}
                for name in links
            ],
        }

    def control(self, agent: str) -> str:
        """Path of the control socket of an agent's data plane."""
        return str(self.sockets / f"{agent}.dp")

    def _ports(self, link: str, side: str) -> list[int]:
        """(user, data plane's user side, data plane's wire side, wire) of one end."""
        return self.ports[link][:4] if side == "a" else self.ports[link][4:]


def _pair(bind: int, peer: int) -> dict[str, list[Any]]:
    return {"bind": [HOST, bind], "peer": [HOST, peer]}


def load_or_make(file: Path, sockets: Path, links: Iterable[str]) -> Wiring:
    """The wiring of a state folder; links that are new get ports, the others keep theirs."""
    stored = read_kept(file)
    ports: dict[str, list[int]] = dict(stored.get("ports", {}))
    canary = stored.get("canary") or secrets.token_hex(16)
    missing = [name for name in links if name not in ports]
    fresh = free_ports(PORTS_PER_LINK * len(missing)) if missing else []
    for index, name in enumerate(missing):
        ports[name] = fresh[PORTS_PER_LINK * index : PORTS_PER_LINK * (index + 1)]
    if missing or not stored:
        durable.replace(file, (json.dumps({"canary": canary, "ports": ports}).encode(),))
    return Wiring(sockets, canary, ports)
