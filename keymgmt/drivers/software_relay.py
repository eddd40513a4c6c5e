"""The wire between software agents, as a process that knows no keys: the independent witness.

It forwards every frame as it is and says what it saw, per link and direction: EtherType, TCI bits E and C,
AN, and whether a plaintext canary stood anywhere in a frame. Clear is any frame that is not 0x88e5 with E=1
and C=1 (rotation.md section 3). A path delay or a cut can be set for drills.
"""

from __future__ import annotations

import heapq
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from keymgmt.drivers.software_loop import Every, Loop, answering
from keymgmt.drivers.software_ports import addresses, send_quietly, udp_port
from keymgmt.drivers.software_program import configured, wired

PERIOD_NS: Final = 100_000_000
DELAY_PERIOD_NS: Final = 2_000_000
DIRECTIONS: Final = ("a>b", "b>a")


def classify(frame: bytes) -> tuple[str, int | None, bool]:
    """Return (kind, AN, clear) of a frame; kind is "88e5/EC", "88e5/E-", ... or the EtherType in hex."""
    if len(frame) < 14:
        return "short", None, True
    ethertype = frame[12:14].hex()
    if ethertype != "88e5" or len(frame) < 15:
        return ethertype, None, True
    tci = frame[14]
    bits = ("E" if tci & 0x08 else "-") + ("C" if tci & 0x04 else "-")
    return f"88e5/{bits}", tci & 3, bits != "EC"


class Direction:
    """Counters of one direction of one link."""

    def __init__(self, canary: bytes) -> None:
        self._canary = canary
        self.frames = self.octets = self.clear = self.canary_seen = self.cut = 0
        self.by_type: Counter[str] = Counter()
        self.by_an: Counter[int] = Counter()

    def saw(self, frame: bytes) -> None:
        """Account for one frame."""
        kind, an, clear = classify(frame)
        self.frames += 1
        self.octets += len(frame)
        self.clear += clear
        self.by_type[kind] += 1
        if an is not None:
            self.by_an[an] += 1
        if self._canary and self._canary in frame:
            self.canary_seen += 1

    def to_json(self) -> dict[str, Any]:
        """Return the counters."""
        return {
            "frames": self.frames,
            "octets": self.octets,
            "clear": self.clear,
            "canary_seen": self.canary_seen,
            "cut": self.cut,
            "by_type": dict(self.by_type),
            "by_an": {str(an): count for an, count in self.by_an.items()},
        }


class RelayedLink:
    """Two ports and what went between them."""

    def __init__(self, doc: Mapping[str, Any], canary: bytes) -> None:
        self.ports = {"a": udp_port(*addresses(doc["a"])), "b": udp_port(*addresses(doc["b"]))}
        self.directions = {way: Direction(canary) for way in DIRECTIONS}
        self.delay_ns = int(doc.get("delay_ms", 0)) * 1_000_000
        self.is_cut: set[str] = set()


class Relay:
    """Forwards and counts for any number of links."""

    def __init__(self, doc: Mapping[str, Any]) -> None:
        canary = bytes.fromhex(doc.get("canary", ""))
        self.links = {link["name"]: RelayedLink(link, canary) for link in doc["links"]}
        self._late: list[tuple[int, int, socket.socket, bytes]] = []
        self._serial = 0
        delayed = any(link.delay_ns for link in self.links.values())
        timer = Every(DELAY_PERIOD_NS if delayed else PERIOD_NS, self._tick)
        self.loop = Loop(doc["control"], answering(self._answer), timer)
        for link in self.links.values():
            for way in DIRECTIONS:
                self._wire(link, way)

    def _wire(self, link: RelayedLink, way: str) -> None:
        source, target = link.ports[way[0]], link.ports[way[2]]
        direction = link.directions[way]

        def take(frame: bytes, now_ns: int) -> None:
            direction.saw(frame)
            if way in link.is_cut:
                direction.cut += 1
            elif link.delay_ns:
                self._serial += 1
                heapq.heappush(self._late, (now_ns + link.delay_ns, self._serial, target, frame))
            else:
                send_quietly(target, frame)

        self.loop.port(source, take)

    def _tick(self, now_ns: int) -> None:
        while self._late and self._late[0][0] <= now_ns:
            _, _, target, frame = heapq.heappop(self._late)
            send_quietly(target, frame)

    def _answer(self, doc: Mapping[str, Any]) -> Mapping[str, Any]:
        if doc["cmd"] == "stats":
            return {
                "links": {
                    name: {way: seen.to_json() for way, seen in link.directions.items()}
                    for name, link in self.links.items()
                }
            }
        if doc["cmd"] == "cut":
            ways = doc["directions"]
            if not set(ways) <= set(DIRECTIONS):
                raise ValueError("directions")
            self.links[doc["link"]].is_cut = set(ways)
            return {"cut": sorted(ways)}
        raise ValueError("cmd")


def run(doc: Mapping[str, Any]) -> None:
    """Run a relay until SIGTERM: {"control", "canary": hex, "links": [{"name", "a", "b", "delay_ms"}]}."""
    Relay(doc).loop.run_until_signal()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: --config FILE."""
    run(configured("Relay between software data planes", argv, wired))


if __name__ == "__main__":
    main()
