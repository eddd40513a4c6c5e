"""The process of one software data plane: controlled port, wire and control socket in one loop.

One datagram is one Ethernet frame without FCS. Both ports are connected UDP sockets on loopback; an ICMP
refusal (ECONNREFUSED) only says that the neighbour is away and is ignored. The process has a session of its
own and outlives its agent; what it holds open ends by itself. No core file is ever written, for keys are in
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from keymgmt.drivers.software_control import answer
from keymgmt.drivers.software_loop import Loop
from keymgmt.drivers.software_plane import Plane
from keymgmt.drivers.software_ports import Address, addresses, boottime_ns, send_quietly, udp_port
from keymgmt.drivers.software_program import configured
from keymgmt.drivers.software_secy import SecyConfig
from keymgmt.processes import keep_out_of_core_files


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
    """A `Plane` between its sockets."""

    def __init__(self, config: DataPlaneConfig) -> None:
        user, wire = udp_port(*config.controlled), udp_port(*config.wire)
        self.plane = Plane(
            config.secy,
            to_wire=lambda frame: send_quietly(wire, frame),
            to_user=lambda frame: send_quietly(user, frame),
            allow_faults=config.allow_faults,
            probe_interval_ns=config.probe_interval_ms * 1_000_000,
        )
        self.loop = Loop(
            config.control, lambda message: answer(self.plane, message, boottime_ns()), self.plane
        )
        self.loop.port(user, self.plane.from_user)
        self.loop.port(wire, self.plane.from_wire)


def run(doc: Mapping[str, Any]) -> None:
    """Run a data plane until SIGTERM. The fork server and `main` end here."""
    keep_out_of_core_files()
    DataPlane(DataPlaneConfig.from_json(doc)).loop.run_until_signal()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: --config FILE [--allow-faults]."""
    faults = ("allow-faults", "accept fault injection (drills only)")
    run(configured("Software MACsec data plane", argv, DataPlaneConfig.from_json, faults))


if __name__ == "__main__":
    main()
