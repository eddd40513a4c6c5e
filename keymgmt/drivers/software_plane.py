"""What one software data plane does with frames and with time; no sockets here.

Holds the two timers that must outlive the agent (rotation.md sections 2 and 5): the *opening*, a lease on
the controlled port that only the agent renews, and the *revert* of an unconfirmed select. While closed, user
frames are dropped above the SecY in both directions; probes still pass, so that a closed link goes on proving
itself.
Time is CLOCK_BOOTTIME in nanoseconds and passed in.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keymgmt.drivers.software_faults import Faults
from keymgmt.drivers.software_guard import Guard
from keymgmt.drivers.software_secy import SecY, SecyConfig
from keymgmt.errors import DriverRefused

PROBE_TYPE: Final = b"\x88\xb5"  # IEEE 802 local experimental EtherType 1
PROBE_MAGIC: Final = b"SGP1"
PROBE_PAYLOAD: Final = 46  # octets, the shortest Ethernet payload
STEADY: Final = "00" * 16  # probe id of the steady probes
MAX_BURST: Final = 256
KEPT_PROBES: Final = 16
MAX_USER_FRAME: Final = 65_507 - 32  # octets: the longest UDP payload less SecTAG and ICV
STATS: Final = (
    "user.Tx",  # frames of the controlled port, taken
    "user.Rx",  # frames given to the controlled port
    "user.TxClosed",  # dropped because the path is closed
    "user.RxClosed",
    "user.TxReserved",  # dropped because they looked like a probe
    "user.TxTooLong",  # dropped because SecTAG and ICV would not fit
    "probe.Sent",
    "probe.Seen",
)

Send = Callable[[bytes], None]


@dataclass(slots=True)
class Revert:
    """An armed watchdog: back to `was` at `at_ns` unless confirmed."""

    an: int
    was: int | None
    was_key_id: str | None
    at_ns: int


class Plane:
    """SecY, guard, opening, revert watchdog and probes of one end."""

    def __init__(
        self,
        config: SecyConfig,
        *,
        to_wire: Send,
        to_user: Send,
        allow_faults: bool = False,
        probe_interval_ns: int = 500_000_000,
    ) -> None:
        self.secy = SecY(config)
        self.guard = Guard(to_wire)
        self.faults = Faults(self.secy) if allow_faults else None
        self.open_until_ns = 0
        self.revert: Revert | None = None
        self.reverts = 0
        self._to_user = to_user
        self._probe_head = bytes.fromhex(config.peer_sci)[:6] + bytes.fromhex(config.sci)[:6] + PROBE_TYPE
        self._interval_ns = probe_interval_ns
        self._next_probe_ns = 0
        self._nonces: OrderedDict[str, list[str]] = OrderedDict()
        self._stats = dict.fromkeys(STATS, 0)

    # --- frames

    def from_user(self, frame: bytes, now_ns: int) -> None:
        """Take a frame from the controlled port."""
        if len(frame) < 14 or frame[12:14] == PROBE_TYPE:
            self._stats["user.TxReserved"] += 1
        elif len(frame) > MAX_USER_FRAME:
            self._stats["user.TxTooLong"] += 1
        elif now_ns >= self.open_until_ns:
            self._stats["user.TxClosed"] += 1
        else:
            self._stats["user.Tx"] += 1
            self._transmit(frame)

    def from_wire(self, frame: bytes, now_ns: int) -> None:
        """Take a frame from the wire."""
        if self.faults is not None and self.faults.is_on("drop_rx"):
            return
        deliver = self.guard.arrived(frame)
        data = self.secy.receive(frame)  # in any case: its counters are the other witness
        if data is None:
            return
        if not deliver:
            self.guard.withheld()
        elif data[12:14] == PROBE_TYPE:
            self._probe_arrived(data)
        elif now_ns >= self.open_until_ns:
            self._stats["user.RxClosed"] += 1
        else:
            self._stats["user.Rx"] += 1
            self._to_user(data)

    def _transmit(self, frame: bytes) -> bool:
        out = self.secy.send(frame)
        if out is None:
            return False
        if self.faults is None or not self.faults.is_on("drop_tx"):
            self.guard.transmit(out)
        return True

    # --- opening

    def arm(self, until_ns: int) -> None:
        """Hold the path open until then; 0, like any instant that has passed, closes at once."""
        self.open_until_ns = until_ns

    def path(self, now_ns: int) -> str:
        """Return "open" or "closed"."""
        return "open" if now_ns < self.open_until_ns else "closed"

    # --- select and its watchdog

    def select(self, an: int, key_id: str, revert_after_ms: int, now_ns: int) -> int | None:
        """Transmit under an SA; revert by itself unless confirmed in time. Returns the AN of before."""
        if self.revert is not None:
            raise DriverRefused("EBUSY", "a select is waiting for its confirm")
        was_an = self.secy.encoding_an
        was_key = self.secy.tx[was_an].key_id if was_an is not None else None
        was = self.secy.select(an, key_id)
        if was != an:
            self.revert = Revert(an, was, was_key, now_ns + revert_after_ms * 1_000_000)
        return was

    def confirm(self, an: int) -> None:
        """Disarm the revert of `an`. Refused when it has fired already."""
        if self.secy.encoding_an != an:
            raise DriverRefused("ENOENT", "this AN is not in use: its select was reverted")
        self.secy.tx[an].confirmed = True
        self.revert = None

    def revert_tx(self, an: int, key_id: str) -> int | None:
        """Select a confirmed SA again at once, without watchdog: the way back of a rollback."""
        if (sa := self.secy.tx.get(an)) is not None and sa.key_id == key_id and not sa.confirmed:
            raise DriverRefused("EINVAL", "this key was never confirmed: there is no way back to it")
        self.secy.select(an, key_id)
        self.revert = None
        return self.secy.encoding_an

    def refuse_retire(self, an: int) -> None:
        """Refuse to delete the SA that a pending revert would go back to."""
        if self.revert is not None and self.revert.was == an:
            raise DriverRefused("EBUSY", "a pending revert goes back to this SA")

    def watch(self, now_ns: int) -> None:
        """Revert a select whose time has passed. Comes before any command, so that none overtakes it."""
        pending = self.revert
        if pending is None or now_ns < pending.at_ns:
            return
        self.revert = None
        old = self.secy.tx.get(pending.was) if pending.was is not None else None
        usable = old is not None and old.key_id == pending.was_key_id
        self.secy.encoding_an = pending.was if usable else None
        self.reverts += 1

    # --- probes

    def probe(self, count: int, probe_id: str) -> list[str]:
        """Send probes now; return the nonces of those that left the SecY."""
        if not 1 <= count <= MAX_BURST:
            raise DriverRefused("EINVAL", f"1 to {MAX_BURST} probes at a time")
        return [nonce for seq in range(count) if (nonce := self._send_probe(probe_id, seq)) is not None]

    def seen(self, probe_id: str) -> list[str]:
        """Return the nonces decrypted for a probe id."""
        return list(self._nonces.get(probe_id, ()))

    def _send_probe(self, probe_id: str, seq: int) -> str | None:
        nonce = secrets.token_bytes(8)
        body = PROBE_MAGIC + bytes.fromhex(probe_id) + seq.to_bytes(4, "big") + nonce
        if not self._transmit(self._probe_head + body.ljust(PROBE_PAYLOAD, b"\0")):
            return None
        self._stats["probe.Sent"] += 1
        return nonce.hex()

    def _probe_arrived(self, frame: bytes) -> None:
        if frame[14:18] != PROBE_MAGIC or len(frame) < 46:
            return
        self._stats["probe.Seen"] += 1
        probe_id = frame[18:34].hex()
        if probe_id == STEADY:
            return
        nonces = self._nonces.setdefault(probe_id, [])
        if len(nonces) < MAX_BURST:
            nonces.append(frame[38:46].hex())
        while len(self._nonces) > KEPT_PROBES:
            self._nonces.popitem(last=False)

    # --- time and read-back

    def tick(self, now_ns: int) -> None:
        """Do what is due: revert, steady probe."""
        self.watch(now_ns)
        if self._interval_ns and now_ns >= self._next_probe_ns:
            self._next_probe_ns = now_ns + self._interval_ns
            if self.secy.encoding_an is not None:
                self._send_probe(STEADY, 0)

    def next_due_ns(self, now_ns: int) -> int:
        """Return when `tick` has something to do next."""
        due = self._next_probe_ns if self._interval_ns else now_ns + 1_000_000_000
        return min(due, self.revert.at_ns) if self.revert is not None else due

    def counters(self) -> dict[str, int]:
        """Return all counters, flat."""
        return self.secy.counters() | self.guard.counters() | self._stats | {"port.Reverts": self.reverts}
