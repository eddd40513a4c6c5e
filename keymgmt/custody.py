"""The port to the key store: what key management asks of custody, whoever provides it.

Each Protocol is the set of rights of one role (rotation.md section 1.5): `LinkKeys` is the conductor's,
`LedgerKey` the ledger's and the gate's, `SealedStore` the gate's, `Provisioner` the provisioner's and the
enroller's. Decryption is in none of them: only an agent opens a wrapped key, over its own connection.
All calls block; the conductor runs them in a worker thread. Errors: `CustodyRefused` ("said no") and
`CustodyUnavailable` ("could not tell": sealed, away, or a fault of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A data key that nobody here has seen: the ciphertext, and the version it is wrapped under."""

    ciphertext: str = field(repr=False)
    version: int = 0


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Read-back after destruction in the live store (final once older snapshots have expired).

    Attributes:
        version: the destroyed version; every lower one is gone as well.
        min_available_version: as read back, at least version + 1.
        latest_version: as read back.
    """

    version: int
    min_available_version: int
    latest_version: int


class LinkKeys(Protocol):
    """One transit key per link, all versions absolute numbers from the journal, never "latest"."""

    epoch: int

    def rotate(self, link: str) -> int:
        """Make a new version and return its number."""
        ...

    def wrapped(self, link: str, associated_data: bytes) -> Wrapped:
        """A fresh 256-bit data key, wrapped under the newest version and bound to `associated_data`."""
        ...

    def destroy(self, link: str, version: int) -> Destroyed:
        """Make `version` and all below it unusable for ever, and read that back."""
        ...

    def read_epoch(self) -> int:
        """The estate's epoch as the key store holds it."""
        ...


class LedgerKey(Protocol):
    """A signing key that never leaves the key store (Ed25519)."""

    name: str

    def public_key(self) -> bytes:
        """32 octets."""
        ...

    def sign(self, data: bytes) -> bytes:
        """64 octets over exactly `data`."""
        ...


class SealedStore(Protocol):
    """Small documents under compare-and-set."""

    def get(self, path: str) -> tuple[Mapping[str, Any], int] | None:
        """The document and its version, or None when there is none."""
        ...

    def put(self, path: str, document: Mapping[str, Any], *, expected: int) -> int:
        """Write when the present version is `expected` (0: none yet); returns the new version."""
        ...


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What an operator carries to an agent: usable once, within minutes, from the bound network.

    Attributes:
        role_id: public half of the AppRole.
        wrapped_secret_id: single-use wrapping token; a second unwrap is refused and thereby noticed.
    """

    agent: str
    link: str
    role_id: str
    wrapped_secret_id: str = field(repr=False)
    mount: str = "enrol"


class Provisioner(Protocol):
    """Creates what links and agents need; never rotates, wraps or decrypts."""

    def add_link(self, link: str, agents: tuple[str, str]) -> None:
        """Create key, entities, aliases and enrolment roles of a link; repeating it changes nothing."""
        ...

    def enrol(self, agent: str, link: str) -> Enrolment:
        """A wrapped one-use secret_id for an agent of a link that was added."""
        ...

    def disable(self, agent: str) -> None:
        """Stop an agent at once: its live tokens and every login (lost or stolen)."""
        ...
