"""Driver of the software data plane: speaks its control protocol and nothing else.

Custody `agent-and-hardware`; enforcement by dead man: the opening is held in the data plane and ends by
itself, within one frame of the end of its arm.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

from keymgmt.checks import decode_counters
from keymgmt.drivers import DriverFacts, SaInstall
from keymgmt.drivers.software_control import FAILED, sa_to_json
from keymgmt.drivers.software_ports import MAX_MESSAGE, peer_uid
from keymgmt.endstate import Reading
from keymgmt.errors import DriverRefused, DriverUnavailable, DriverUnreadable, MessageRefused

FACTS: Final = DriverFacts(
    name="software",
    custody="agent-and-hardware",
    enforcement="dead-man",
    guard="wire filter of the data plane",
    worst_close_ms=1,
)
REPEATABLE: Final = frozenset({"read", "counters", "guard", "seen", "arm", "confirm"})
"""Commands that may be sent again when their fate is unknown; a key is never one of them."""


class SoftwareDriver:
    """One data plane, reached over its control socket; reconnects when it was restarted. Thread-safe."""

    def __init__(self, control: str, timeout_s: float = 2.0) -> None:
        self._path, self._timeout_s = control, timeout_s
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    @property
    def facts(self) -> DriverFacts:
        """What the driver declares of itself."""
        return FACTS

    def read(self) -> Reading:
        """Read configuration, SAs, path and counters back."""
        try:
            return Reading.from_json(self._ask("read"))
        except MessageRefused as bad:
            why = f"the data plane's read-back is of another form: {bad}"
            raise DriverUnreadable(why, fix="end the data plane: its successor is of this version") from None

    def sample(self) -> Mapping[str, int]:
        """Read counters only."""
        return decode_counters(self._ask("counters")["counters"])

    def guard(self) -> Mapping[str, int]:
        """Read the guard's own counters."""
        return decode_counters(self._ask("guard")["counters"])

    def permit(self, until_ns: int) -> None:
        """Hold the path open until then on CLOCK_BOOTTIME; 0 closes at once."""
        self._ask("arm", until_ns=str(until_ns))

    def install_rx(self, sa: SaInstall, secy_id: str) -> str:
        """Install a receive SA, enabled, into this SecY lifetime; return the check value read back."""
        return str(self._ask("install_rx", sa=sa_to_json(sa), secy_id=secy_id)["check"])

    def install_tx(self, sa: SaInstall, secy_id: str) -> str:
        """Install a transmit SA, not selected, into this SecY lifetime; return the check value read back."""
        return str(self._ask("install_tx", sa=sa_to_json(sa), secy_id=secy_id)["check"])

    def select_tx(self, an: int, key_id: str, revert_after_ms: int) -> int | None:
        """Transmit under this SA; return the AN of before."""
        was = self._ask("select", an=an, key_id=key_id, revert_after_ms=revert_after_ms)["was"]
        return None if was is None else int(was)

    def confirm(self, an: int) -> None:
        """Disarm the revert of `an`."""
        self._ask("confirm", an=an)

    def revert_tx(self, an: int, key_id: str) -> int | None:
        """Select the SA (an, key_id) again; return the AN in use."""
        now = self._ask("revert", an=an, key_id=key_id)["encoding_an"]
        return None if now is None else int(now)

    def retire_tx(self, an: int, key_id: str) -> Mapping[str, int]:
        """Delete a transmit SA that is not in use; return its last counters."""
        return decode_counters(self._ask("retire_tx", an=an, key_id=key_id)["finals"])

    def retire_rx(self, an: int, key_id: str) -> Mapping[str, int]:
        """Disable and delete a receive SA; return its last counters."""
        return decode_counters(self._ask("retire_rx", an=an, key_id=key_id)["finals"])

    def probe(self, count: int, probe_id: str) -> tuple[tuple[str, ...], int]:
        """Send probes now; return their nonces and the next PN."""
        doc = self._ask("probe", count=count, probe_id=probe_id)
        return tuple(doc["nonces"]), int(doc["next_pn"])

    def seen(self, probe_id: str) -> tuple[str, ...]:
        """Return the nonces decrypted so far for a probe id."""
        return tuple(self._ask("seen", probe_id=probe_id)["nonces"])

    def fault(self, name: str, **params: Any) -> tuple[str, ...]:
        """Inject a fault, or "clear" all; refused unless the data plane was started with --allow-faults."""
        return tuple(self._ask("fault", name=name, params=params)["faults"])

    def close(self) -> None:
        """Let go of the socket."""
        with self._lock:
            self._hang_up()

    def _ask(self, command: str, **fields: Any) -> Mapping[str, Any]:
        message = json.dumps({"cmd": command, **fields}, separators=(",", ":")).encode()
        with self._lock:
            reply = self._exchange(message, command in REPEATABLE)
        if "error" in reply:
            code, detail = reply["error"]["code"], reply["error"]["detail"]
            if code == FAILED:  # what it had done by then is open
                raise DriverUnavailable(detail, fix="read the state")
            raise DriverRefused(code, detail)
        answer: Mapping[str, Any] = reply["ok"]
        return answer

    def _exchange(self, message: bytes, repeatable: bool) -> Mapping[str, Any]:
        fresh = self._sock is None
        try:
            return self._once(message)
        except _NotSentError:
            self._hang_up()  # the old connection broke before the command went out: harmless to try anew
        except (OSError, ValueError) as lost:
            self._hang_up()
            # Whether the command was done is open; it may have been by a data plane that is dead by now.
            if fresh or not repeatable or isinstance(lost, TimeoutError):
                raise self._away() from None
        try:
            return self._once(message)
        except (OSError, ValueError, _NotSentError):
            self._hang_up()
            raise self._away() from None

    def _once(self, message: bytes) -> Mapping[str, Any]:
        if self._sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.settimeout(self._timeout_s)
            self._sock = sock
            sock.connect(self._path)
            if peer_uid(sock) != os.geteuid():
                self._hang_up()
                raise DriverUnavailable("the control socket is held by another user: nothing was sent")
        try:
            self._sock.send(message)
        except BrokenPipeError:
            raise _NotSentError from None
        octets = self._sock.recv(MAX_MESSAGE)
        if not octets:
            raise ConnectionResetError
        reply: Mapping[str, Any] = json.loads(octets)
        if not isinstance(reply, dict) or not {"ok", "error"} & set(reply):
            raise ValueError("neither ok nor error")
        return reply

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    @staticmethod
    def _away() -> DriverUnavailable:
        return DriverUnavailable("the data plane does not answer", fix="restart it, then rekey the link")


class _NotSentError(Exception):
    """The connection was broken before the command left this process."""
