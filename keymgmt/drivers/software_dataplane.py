"""The process of one software data plane: controlled port, wire and control socket in one loop.

One datagram is one Ethernet frame without FCS. Both ports are connected UDP sockets on loopback; an ICMP
refusal (ECONNREFUSED) only says that the neighbour is away and is ignored. The process has a session of its
own and outlives its agent; what it holds open ends by itself. No core file is ever written, for keys are in
memory.
"""

from __future__ import annotations

import argparse
import json
import selectors
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from keymgmt.drivers.software_control import MAX_MESSAGE, answer
from keymgmt.drivers.software_plane import Plane
from keymgmt.drivers.software_ports import (
    MAX_FRAME,
    Address,
    accepted,
    addresses,
    boottime_ns,
    control_socket,
    send_quietly,
    udp_port,
)
from keymgmt.drivers.software_secy import SecyConfig
from keymgmt.processes import keep_out_of_core_files

BATCH: Final = 128  # frames taken from one port before the others get a turn
MOST_PEERS: Final = 8  # control connections at a time; its agent needs one


@dataclass(frozen=True, slots=True)
class DataPlaneConfig:
    """Configuration of one data plane; holds no secret.

    Attributes:
        controlled, wire: (bind, peer) addresses of the two ports.
        control: path of the control socket, below 100 characters.
    """

    name: str
    secy: SecyConfig
    controlled: tuple[Address, Address]
    wire: tuple[Address, Address]
    control: str
    allow_faults: bool = False
    probe_interval_ms: int = 500

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """Read {"name", "sci", "peer_sci", "cipher", "replay_window", "max_sa_per_sc", "controlled", ...}."""
        secy = SecyConfig(
            doc["sci"],
            doc["peer_sci"],
            doc["cipher"],
            int(doc.get("replay_window", 64)),
            int(doc.get("max_sa_per_sc", 4)),
        )
        return cls(
            doc["name"],
            secy,
            addresses(doc["controlled"]),
            addresses(doc["wire"]),
            doc["control"],
            bool(doc.get("allow_faults", False)),
            int(doc.get("probe_interval_ms", 500)),
        )


class DataPlane:
    """Sockets and loop around a `Plane`."""

    def __init__(self, config: DataPlaneConfig) -> None:
        self._user = udp_port(*config.controlled)
        self._wire = udp_port(*config.wire)
        self._control = control_socket(config.control)
        self._path = config.control
        self._stopped, self._peers = False, 0
        self._selector = selectors.DefaultSelector()
        self.plane = Plane(
            config.secy,
            to_wire=lambda frame: send_quietly(self._wire, frame),
            to_user=lambda frame: send_quietly(self._user, frame),
            allow_faults=config.allow_faults,
            probe_interval_ns=config.probe_interval_ms * 1_000_000,
        )
        self._watch(self._user, lambda: self._frames(self._user, self.plane.from_user))
        self._watch(self._wire, lambda: self._frames(self._wire, self.plane.from_wire))
        self._watch(self._control, self._accept)

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._stopped:
            now = boottime_ns()
            wait = max(0, self.plane.next_due_ns(now) - now) / 1e9
            ready = self._selector.select(min(wait, 1.0))
            self.plane.tick(boottime_ns())  # first: a revert that is due comes before any frame
            for key, _ in ready:
                key.data()
        self._close()

    def stop(self, *_: object) -> None:
        """Leave the loop at its next turn."""
        self._stopped = True

    def _watch(self, sock: socket.socket, ready: Callable[[], None]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, ready)

    def _frames(self, sock: socket.socket, take: Callable[[bytes, int], None]) -> None:
        for _ in range(BATCH):
            try:
                frame = sock.recv(MAX_FRAME)
            except BlockingIOError:
                return
            except OSError:  # a neighbour that is away, told late
                continue
            take(frame, boottime_ns())  # each by its own time: the process may stand still in between

    def _accept(self) -> None:
        peer = accepted(self._control)
        if peer is None:
            return
        if self._peers >= MOST_PEERS:
            peer.close()
            return
        self._peers += 1
        self._watch(peer, lambda: self._command(peer))

    def _command(self, peer: socket.socket) -> None:
        try:
            message = peer.recv(MAX_MESSAGE)
            if message:
                peer.send(answer(self.plane, message, boottime_ns()))
                return
        except OSError:
            pass
        self._selector.unregister(peer)
        self._peers -= 1
        peer.close()

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        Path(self._path).unlink(missing_ok=True)


def run(doc: Mapping[str, Any]) -> None:
    """Run a data plane until SIGTERM. The fork server and `main` end here."""
    keep_out_of_core_files()
    plane = DataPlane(DataPlaneConfig.from_json(doc))
    signal.signal(signal.SIGTERM, plane.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plane.run()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: --config FILE [--allow-faults]."""
    parser = argparse.ArgumentParser(description="Software MACsec data plane")
    parser.add_argument("--config", required=True, help="JSON file, see DataPlaneConfig.from_json")
    parser.add_argument("--allow-faults", action="store_true", help="accept fault injection (drills only)")
    args = parser.parse_args(argv)
    with open(args.config, encoding="utf-8") as file:
        doc = json.load(file)
    run(doc | {"allow_faults": args.allow_faults})


if __name__ == "__main__":
    main()
