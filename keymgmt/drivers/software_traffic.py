"""Traffic generator and sink: numbered frames with a plaintext canary over controlled ports of many links.

Each direction of each link sends bursts every 10 ms; the sink at the other end finds loss, duplicates and
reordering from the numbers alone. `lost` counts numbers that a later one overtook; `outstanding` adds what is
still on its way or was swallowed at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

from keymgmt.drivers.software_loop import Every, Loop, answering
from keymgmt.drivers.software_ports import addresses, send_quietly, udp_port
from keymgmt.drivers.software_program import configured, wired

BURST_NS: Final = 10_000_000
ETHERTYPE: Final = b"\x08\x00"
MISSING_KEPT: Final = 200_000  # numbers remembered as missing, to tell late from lost
_NUMBER: Final = Struct(">Q")


class Sink:
    """What one receiving end saw of one direction."""

    def __init__(self) -> None:
        self.received = self.duplicates = self.reordered = self.foreign = 0
        self.next_number = 0
        self._missing: set[int] = set()
        self._forgotten = 0

    @property
    def lost(self) -> int:
        """Numbers that were overtaken and have not come."""
        return len(self._missing) + self._forgotten

    def saw(self, number: int) -> None:
        """Account for one numbered frame."""
        if number >= self.next_number:
            gap = number - self.next_number
            if gap > MISSING_KEPT - len(self._missing):
                self._forgotten += gap
            elif gap:
                self._missing.update(range(self.next_number, number))
            self.next_number = number + 1
            self.received += 1
        elif number in self._missing:
            self._missing.discard(number)
            self.reordered += 1
            self.received += 1
        else:
            self.duplicates += 1


class Stream:
    """One direction of one link: a generator at one end, a sink at the other."""

    def __init__(self, link: str, way: str, canary: bytes, size: int) -> None:
        self.sent = 0
        self.sink = Sink()
        self._head = bytes(6) + bytes(6) + ETHERTYPE + canary + f"{link} {way} ".encode()
        self._at = len(self._head)
        self._size = max(size, self._at + 8)

    def next_frame(self) -> bytes:
        """Return the next numbered frame."""
        frame = (self._head + _NUMBER.pack(self.sent)).ljust(self._size, b".")
        self.sent += 1
        return frame

    def arrived(self, frame: bytes, _now_ns: int) -> None:
        """Account for a frame at the sink."""
        if frame.startswith(self._head) and len(frame) >= self._at + 8:
            self.sink.saw(_NUMBER.unpack_from(frame, self._at)[0])
        else:
            self.sink.foreign += 1

    def to_json(self) -> dict[str, int]:
        """Return the figures."""
        sink = self.sink
        return {
            "sent": self.sent,
            "received": sink.received,
            "lost": sink.lost,
            "outstanding": self.sent - sink.received,
            "duplicates": sink.duplicates,
            "reordered": sink.reordered,
            "foreign": sink.foreign,
        }


class Traffic:
    """Generators and sinks of many links in one process."""

    def __init__(self, doc: Mapping[str, Any]) -> None:
        canary, size = bytes.fromhex(doc.get("canary", "")), int(doc.get("size", 256))
        self._rate = int(doc.get("rate_fps", 250))
        self._sending = bool(doc.get("sending", True))
        self.loop = Loop(doc["control"], answering(self._answer), Every(BURST_NS, self._burst))
        self.streams: dict[str, dict[str, Stream]] = {}
        self._outputs: list[tuple[Any, Stream]] = []
        self._owed = 0.0
        self._last_ns: int | None = None
        for link in doc["links"]:
            self._add(link, canary, size)

    def _add(self, doc: Mapping[str, Any], canary: bytes, size: int) -> None:
        name = doc["name"]
        ports = {end: udp_port(*addresses(doc[end])) for end in ("a", "b")}
        self.streams[name] = {way: Stream(name, way, canary, size) for way in ("a>b", "b>a")}
        for way, stream in self.streams[name].items():
            self._outputs.append((ports[way[0]], stream))
            self.loop.port(ports[way[2]], stream.arrived)

    def _burst(self, now_ns: int) -> None:
        elapsed = 0 if self._last_ns is None else min(now_ns - self._last_ns, 10 * BURST_NS)
        self._last_ns = now_ns
        if not self._sending:
            return
        self._owed += self._rate * elapsed / 1e9
        due = int(self._owed)
        self._owed -= due
        for sock, stream in self._outputs:
            for _ in range(due):
                send_quietly(sock, stream.next_frame())

    def _answer(self, doc: Mapping[str, Any]) -> Mapping[str, Any]:
        command = doc["cmd"]
        if command in ("pause", "resume"):
            self._sending = command == "resume"
            return {"sending": self._sending}
        if command != "stats":
            raise ValueError("cmd")
        return {
            "sending": self._sending,
            "links": {
                name: {way: stream.to_json() for way, stream in ways.items()}
                for name, ways in self.streams.items()
            },
        }


def run(doc: Mapping[str, Any]) -> None:
    """Run until SIGTERM: {"control", "canary", "rate_fps", "size", "sending", "links"}."""
    Traffic(doc).loop.run_until_signal()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: --config FILE."""
    run(configured("Numbered traffic over software data planes", argv, wired))


if __name__ == "__main__":
    main()
