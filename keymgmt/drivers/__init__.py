"""What an agent asks of the thing that encrypts: the core Protocol and one of two key ports.

A driver states its custody and how it enforces a closing (rotation.md sections 1.6 and 5). All methods
block shortly, raise `DriverRefused` with a Linux errno name when the answer was no, and `DriverUnavailable`
when there was none. Key material passes through `SakPort.install_*` only and is never part of a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from keymgmt.endstate import Reading

Custody = Literal["agent-and-hardware", "device-config", "provider-held"]
Enforcement = Literal["dead-man", "advisory"]


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What a driver declares of itself, once.

    Attributes:
        guard: what keeps clear frames off the wire; "none" where nothing does.
        worst_close_ms: from the end of an arm to the last frame, worst case.
        max_sa_per_sc: 4, or 2 on some ASICs.
    """

    name: str
    custody: Custody
    enforcement: Enforcement
    guard: str
    worst_close_ms: int
    max_sa_per_sc: int = 4


@dataclass(frozen=True, slots=True)
class SaInstall:
    """One SA to install; its repr shows only what is public.

    Attributes:
        check: the derivation's check value, kept beside the key by the data plane and read back.
    """

    an: int
    cipher: str
    sci: str
    ssci: int
    key_id: str
    check: str
    sak: bytes = field(repr=False)
    salt: bytes = field(repr=False)


class Core(Protocol):
    """What every driver does."""

    @property
    def facts(self) -> DriverFacts:
        """What the driver declares of itself."""
        ...

    def read(self) -> Reading:
        """Read configuration, SAs, path and counters back."""
        ...

    def sample(self) -> Mapping[str, int]:
        """Read counters only."""
        ...

    def guard(self) -> Mapping[str, int]:
        """Read the guard's own counters; empty where there is none."""
        ...

    def permit(self, until_ns: int) -> None:
        """Hold the path open until then on CLOCK_BOOTTIME, without this process; 0 closes at once.

        An instant and not a duration: a command that was delayed on its way opens nothing afterwards.
        """
        ...


class SakPort(Protocol):
    """Key port of drivers whose SAKs the agent installs (kernel, software)."""

    def install_rx(self, sa: SaInstall, secy_id: str) -> str:
        """Install a receive SA, enabled, into this SecY lifetime only; return the check value read back."""
        ...

    def install_tx(self, sa: SaInstall, secy_id: str) -> str:
        """Install a transmit SA, not selected, into this SecY lifetime only; return the check value."""
        ...

    def select_tx(self, an: int, key_id: str, revert_after_ms: int) -> int | None:
        """Transmit under this SA; return the AN of before. Without `confirm` in time it reverts by itself."""
        ...

    def confirm(self, an: int) -> None:
        """Disarm the revert of `an`."""
        ...

    def revert_tx(self, an: int, key_id: str) -> int | None:
        """Select the SA (an, key_id) again, its PN continuing; return the AN in use."""
        ...

    def retire_tx(self, an: int, key_id: str) -> Mapping[str, int]:
        """Delete a transmit SA that is not in use; return its last counters."""
        ...

    def retire_rx(self, an: int, key_id: str) -> Mapping[str, int]:
        """Disable and delete a receive SA; return its last counters."""
        ...

    def probe(self, count: int, probe_id: str) -> tuple[tuple[str, ...], int]:
        """Send probes now; return their nonces and the next PN."""
        ...

    def seen(self, probe_id: str) -> tuple[str, ...]:
        """Return the nonces decrypted so far for a probe id."""
        ...


class CakPort(Protocol):
    """Key port of drivers where MKA runs on the device (rotation.md section 2, CAK kind)."""

    def add_participant(self, ckn: str, cak: bytes) -> None:
        """Add an MKA participant beside the old one."""
        ...

    def participants(self) -> Mapping[str, Mapping[str, str]]:
        """Return per CKN: principal or not, live peers, read back from the device."""
        ...

    def make_principal(self, ckn: str) -> None:
        """Let the participant with this CKN distribute the SAK; refuses one without a live peer."""
        ...

    def remove_participant(self, ckn: str) -> None:
        """Remove a participant; refuses a principal without a live alternate."""
        ...


class SakDriver(Core, SakPort, Protocol):
    """A driver of the SAK kind."""
