"""Driver of the software data plane: speaks its control protocol and nothing else.

Custody `agent-and-hardware`; enforcement by dead man: the opening is held in the data plane and ends by
itself, within one frame of the end of its arm.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

from keymgmt.drivers import DriverFacts, Reading, SaInstall
from keymgmt.drivers.software_control import MAX_MESSAGE, sa_to_json
from keymgmt.errors import DriverRefused, DriverUnavailable
from keymgmt.operations import SaState, decode_counters

FACTS: Final = DriverFacts(
    name="software",
    custody="agent-and-hardware",
    enforcement="dead-man",
    guard="wire filter of the data plane",
    worst_close_ms=1,
)


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
        doc = self._ask("read")
        return Reading(
            secy_id=doc["secy_id"],
            protect=doc["protect"],
            encrypt=doc["encrypt"],
            validate=doc["validate"],
            tx_sci=doc["tx_sci"],
            encoding_an=doc["encoding_an"],
            tx=tuple(SaState.from_json(sa, "next_pn") for sa in doc["tx"]),
            rx_sci=doc["rx_sci"],
            rx=tuple(SaState.from_json(sa, "lowest_pn") for sa in doc["rx"]),
            path=doc["path"],
            revert_pending=doc["revert_pending"],
            counters=decode_counters(doc["counters"]),
            faults=tuple(doc["faults"]),
        )

    def sample(self) -> Mapping[str, int]:
        """Read counters only."""
        return decode_counters(self._ask("counters")["counters"])

    def guard(self) -> Mapping[str, int]:
        """Read the guard's own counters."""
        return decode_counters(self._ask("guard")["counters"])

    def permit(self, open_for_ms: int) -> None:
        """Hold the path open for so long from now; 0 closes at once."""
        self._ask("arm", ms=open_for_ms)

    def install_rx(self, sa: SaInstall) -> str:
        """Install a receive SA, enabled; return the check value read back."""
        return str(self._ask("install_rx", sa=sa_to_json(sa))["check"])

    def install_tx(self, sa: SaInstall) -> str:
        """Install a transmit SA, not selected; return the check value read back."""
        return str(self._ask("install_tx", sa=sa_to_json(sa))["check"])

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
            reply = self._exchange(message)
        if "error" in reply:
            raise DriverRefused(reply["error"]["code"], reply["error"]["detail"])
        answer: Mapping[str, Any] = reply["ok"]
        return answer

    def _exchange(self, message: bytes) -> Mapping[str, Any]:
        fresh = self._sock is None
        try:
            return self._once(message)
        except OSError as lost:
            self._hang_up()
            # A timeout leaves open whether the command was done; only a broken old connection is tried anew.
            if fresh or isinstance(lost, TimeoutError):
                raise self._away() from None
        try:
            return self._once(message)
        except OSError:
            self._hang_up()
            raise self._away() from None

    def _once(self, message: bytes) -> Mapping[str, Any]:
        if self._sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.settimeout(self._timeout_s)
            self._sock = sock
            sock.connect(self._path)
        self._sock.send(message)
        octets = self._sock.recv(MAX_MESSAGE)
        if not octets:
            raise ConnectionResetError
        reply: Mapping[str, Any] = json.loads(octets)
        return reply

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    @staticmethod
    def _away() -> DriverUnavailable:
        return DriverUnavailable("the data plane does not answer", fix="restart it, then rekey the link")
