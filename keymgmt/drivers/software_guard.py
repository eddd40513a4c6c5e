"""The guard on the wire, behind the SecY and apart from it: it shares no code and no state with the SecY.

Passes to the wire only EtherType 0x88e5 with TCI E=1 and C=1 (rotation.md section 3, clear frame); everything
else is dropped and counted, whatever the SecY believes of its own configuration. Arriving frames are
classified and counted the same way before the SecY counts them too: two witnesses. What the SecY would then
deliver of a frame that was readable on the wire (integrity only) is withheld.
"""

from __future__ import annotations

from collections.abc import Callable

_MACSEC = b"\x88\xe5"
_CONFIDENTIAL = 0x0C  # TCI bits E and C (802.1AE 9.5)


def is_confidential(frame: bytes) -> bool:
    """Whether a frame on the wire is MACsec with encrypted data."""
    return len(frame) > 44 and frame[12:14] == _MACSEC and frame[14] & _CONFIDENTIAL == _CONFIDENTIAL


class Guard:
    """Filter and counters of one wire port. `send` is the wire's own send."""

    __slots__ = ("_send", "in_clear", "in_dropped", "in_frames", "out_dropped", "out_frames")

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self.out_frames = self.out_dropped = 0
        self.in_frames = self.in_clear = self.in_dropped = 0

    def transmit(self, frame: bytes) -> None:
        """Put a frame on the wire when it is confidential; count a drop when not."""
        if not is_confidential(frame):
            self.out_dropped += 1
            return
        self.out_frames += 1
        self._send(frame)

    def arrived(self, frame: bytes) -> bool:
        """Count a frame from the wire; return whether what it holds may be delivered."""
        self.in_frames += 1
        if is_confidential(frame):
            return True
        self.in_clear += 1
        return False

    def withheld(self) -> None:
        """Count a frame that the SecY found valid and that was readable on the wire."""
        self.in_dropped += 1

    def counters(self) -> dict[str, int]:
        """Return `guard.*` and the port's own frame counters."""
        return {
            "guard.OutDropped": self.out_dropped,
            "guard.InClear": self.in_clear,
            "guard.InDropped": self.in_dropped,
            "port.TxFrames": self.out_frames,
            "port.RxFrames": self.in_frames,
        }
