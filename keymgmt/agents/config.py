"""What one agent is told at its start. One agent keeps one end of one link. Holds no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, Self

VERSION: Final = version("sluicegate")


@dataclass(frozen=True, slots=True)
class Server:
    """A TLS server and the CA file that it is verified with."""

    host: str
    port: int
    ca: str

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """Read {"host", "port", "ca"}."""
        return cls(str(doc["host"]), int(doc["port"]), str(doc["ca"]))


@dataclass(frozen=True, slots=True)
class BaoPaths:
    """Where this agent's rights lie in OpenBao. `keys_mount` carries the epoch: "links-e1"."""

    keys_mount: str
    cert_mount: str = "cert"
    cert_role: str = "agent"
    pki_mount: str = "pki"
    pki_role: str = "agent"
    approle_mount: str = "enrol"


@dataclass(frozen=True, slots=True)
class Timers:
    """Intervals of the agent's loops, in milliseconds."""

    check_ms: int = 250  # between two looks at the data plane; the arm is renewed at this pace
    clean_ms: int = 1_500  # this long without a suspicious sample before the path may open again
    permit_retry_ms: int = 1_000  # between two pulls while there is no valid permit
    poll_retry_ms: int = 500  # after a failed poll; doubles up to poll_retry_max_ms
    poll_retry_max_ms: int = 5_000
    poll_timeout_ms: int = 40_000  # above the 25 s for which the control plane holds a poll
    permit_timeout_ms: int = 3_000
    renew_check_ms: int = 5_000  # between two looks at token and certificate ages


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything an agent needs.

    Attributes:
        name: the CN of its certificate.
        endpoint: its side of the link; "a" stands first in the link's endpoints.
        control: path of the data plane's control socket.
        permit_roots: pinned permit-root keys, key id (keymgmt.permit.key_id_of) -> 32 octets.
        folder: its own folder: identity, fence, burnt key ids, orders. Mode 0700.
    """

    name: str
    link: str
    endpoint: Literal["a", "b"]
    sci: str
    peer_sci: str
    control: str
    control_plane: Server
    openbao: Server
    bao: BaoPaths
    folder: Path
    permit_roots: Mapping[str, bytes] = field(repr=False)
    timers: Timers = Timers()

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """Read a configuration file's object; timers are optional."""
        if doc["endpoint"] not in ("a", "b"):
            raise ValueError("endpoint is a or b")
        return cls(
            name=doc["name"],
            link=doc["link"],
            endpoint=doc["endpoint"],
            sci=doc["sci"],
            peer_sci=doc["peer_sci"],
            control=doc["control"],
            control_plane=Server.from_json(doc["control_plane"]),
            openbao=Server.from_json(doc["openbao"]),
            bao=BaoPaths(**doc["bao"]),
            folder=Path(doc["folder"]),
            permit_roots={name: bytes.fromhex(key) for name, key in doc["permit_roots"].items()},
            timers=Timers(**doc.get("timers", {})),
        )
