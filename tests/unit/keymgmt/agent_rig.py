"""Two ends of one link for tests: planes in memory, or data planes in threads with real sockets."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keymgmt.derive import SaKey, SaPair, derive_pair
from keymgmt.drivers import SaInstall
from keymgmt.drivers.software import SoftwareDriver
from keymgmt.drivers.software_dataplane import DataPlane, DataPlaneConfig
from keymgmt.drivers.software_plane import Plane
from keymgmt.drivers.software_ports import free_ports
from keymgmt.drivers.software_relay import Relay
from keymgmt.drivers.software_secy import SecyConfig
from keymgmt.drivers.software_traffic import Traffic

SCI = {"a": "0200000000010001", "b": "0200000000020001"}
CIPHER = "GCM-AES-XPN-256"
LINK = "cw-gcp-1"
CANARY = b"PLAINTEXT-CANARY"
MS = 1_000_000
USER = bytes.fromhex("0200000000020200000000010800") + CANARY + bytes(40)


def pairs(
    rotation: str = "r1", an: int = 0, cipher: str = CIPHER, key: bytes | None = None
) -> dict[str, SaPair]:
    data_key = key or secrets.token_bytes(32)
    plan: dict[str, Any] = {"link": LINK, "rotation": rotation, "cipher": cipher, "an": an}
    return {
        "a": derive_pair(data_key, own_sci=SCI["a"], peer_sci=SCI["b"], **plan),
        "b": derive_pair(data_key, own_sci=SCI["b"], peer_sci=SCI["a"], **plan),
    }


def sa(key: SaKey, an: int, sci: str, cipher: str = CIPHER) -> SaInstall:
    return SaInstall(an, cipher, sci, key.ssci, key.key_id, key.check, key.sak, key.salt)


class MemoryLink:
    """Two planes whose wires meet in lists that a test can look at."""

    def __init__(self, cipher: str = CIPHER, *, allow_faults: bool = False, window: int = 64) -> None:
        self.now = 1_000 * MS
        self.wire: dict[str, list[bytes]] = {"a": [], "b": []}
        self.user: dict[str, list[bytes]] = {"a": [], "b": []}
        self.cipher = cipher
        self.ends = {
            end: Plane(
                SecyConfig(SCI[end], SCI[peer], cipher, window),
                to_wire=self.wire[end].append,
                to_user=self.user[end].append,
                allow_faults=allow_faults,
                probe_interval_ns=0,
            )
            for end, peer in (("a", "b"), ("b", "a"))
        }

    def install(self, an: int = 0, rotation: str = "r1") -> dict[str, SaPair]:
        keys = pairs(rotation, an, self.cipher)
        for end, peer in (("a", "b"), ("b", "a")):
            self.ends[end].secy.add_rx(sa(keys[end].rx, an, SCI[peer], self.cipher))
            self.ends[end].secy.add_tx(sa(keys[end].tx, an, SCI[end], self.cipher))
        return keys

    def key(self, an: int = 0, rotation: str = "r1") -> dict[str, SaPair]:
        keys = self.install(an, rotation)
        for end, plane in self.ends.items():
            plane.select(an, keys[end].tx.key_id, 1000, self.now)
            plane.confirm(an)
        return keys

    def open(self, for_ms: int = 1000) -> None:
        for plane in self.ends.values():
            plane.arm(self.now + for_ms * MS)

    def carry(self) -> list[bytes]:
        """Deliver what stands on both wires; return the frames."""
        frames = []
        for end, peer in (("a", "b"), ("b", "a")):
            sent, self.wire[end][:] = list(self.wire[end]), []
            frames += sent
            for frame in sent:
                self.ends[peer].from_wire(frame, self.now)
        return frames


class SocketLink:
    """Two data planes, a relay and traffic, each a thread of this process, over loopback."""

    def __init__(
        self, folder: Path, *, cipher: str = CIPHER, allow_faults: bool = False, rate_fps: int = 250
    ) -> None:
        self.folder, self.cipher = folder, cipher
        ports = free_ports(8)
        host = "127.0.0.1"
        user, plane_user = {"a": ports[0], "b": ports[1]}, {"a": ports[2], "b": ports[3]}
        plane_wire, relay = {"a": ports[4], "b": ports[5]}, {"a": ports[6], "b": ports[7]}

        def pair(bind: int, peer: int) -> dict[str, Any]:
            return {"bind": [host, bind], "peer": [host, peer]}

        self.configs: dict[str, dict[str, Any]] = {
            end: {
                "name": f"{LINK}-{end}",
                "sci": SCI[end],
                "peer_sci": SCI[peer],
                "cipher": cipher,
                "controlled": pair(plane_user[end], user[end]),
                "wire": pair(plane_wire[end], relay[end]),
                "control": str(folder / f"{end}.sock"),
                "allow_faults": allow_faults,
                "probe_interval_ms": 100,
            }
            for end, peer in (("a", "b"), ("b", "a"))
        }
        ends = {end: pair(relay[end], plane_wire[end]) for end in "ab"}
        self.relay_config = {
            "control": str(folder / "relay.sock"),
            "canary": CANARY.hex(),
            "links": [{"name": LINK, **ends}],
        }
        ends = {end: pair(user[end], plane_user[end]) for end in "ab"}
        self.traffic_config = {
            "control": str(folder / "traffic.sock"),
            "canary": CANARY.hex(),
            "rate_fps": rate_fps,
            "sending": False,
            "links": [{"name": LINK, **ends}],
        }
        self.drivers = {end: SoftwareDriver(self.configs[end]["control"]) for end in "ab"}
        self._planes: dict[str, tuple[DataPlane, threading.Thread]] = {}
        self._loops: list[tuple[Any, threading.Thread]] = []

    def start(self, *, traffic: bool = True) -> None:
        for end in "ab":
            self.start_plane(end)
        for process in (Relay(self.relay_config), *([Traffic(self.traffic_config)] if traffic else [])):
            thread = threading.Thread(target=process.loop.run, daemon=True)
            thread.start()
            self._loops.append((process.loop, thread))

    def start_plane(self, end: str) -> DataPlane:
        plane = DataPlane(DataPlaneConfig.from_json(self.configs[end]))
        thread = threading.Thread(target=plane.loop.run, daemon=True)
        thread.start()
        self._planes[end] = (plane, thread)
        return plane

    def stop_plane(self, end: str) -> None:
        plane, thread = self._planes.pop(end)
        plane.loop.stop()
        thread.join(5)

    def stop(self) -> None:
        for end in list(self._planes):
            self.stop_plane(end)
        for loop, thread in self._loops:
            loop.stop()
            thread.join(5)
        for driver in self.drivers.values():
            driver.close()

    def rotate(self, an: int, rotation: str) -> dict[str, SaPair]:
        """Install, select and confirm one key by the drivers, receive before transmit."""
        keys = pairs(rotation, an, self.cipher)
        for end, peer in (("a", "b"), ("b", "a")):
            secy_id = self.drivers[end].read().secy_id
            self.drivers[end].install_rx(sa(keys[end].rx, an, SCI[peer], self.cipher), secy_id)
            self.drivers[end].install_tx(sa(keys[end].tx, an, SCI[end], self.cipher), secy_id)
        for end in "ab":
            self.drivers[end].select_tx(an, keys[end].tx.key_id, 5000)
            self.drivers[end].confirm(an)
        return keys


@contextmanager
def socket_link(**options: Any) -> Iterator[SocketLink]:
    """A running `SocketLink` in a short temporary folder (unix socket paths are limited)."""
    traffic = options.pop("traffic", True)
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as folder:
        link = SocketLink(Path(folder), **options)
        link.start(traffic=traffic)
        try:
            yield link
        finally:
            link.stop()
