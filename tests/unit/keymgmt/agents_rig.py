"""Agents for tests: real agents, drivers and data planes; control plane and OpenBao are the tests' own.

`FakeControl` leaves out TLS and HTTP; `FakeKeys` leaves out OpenBao but binds a wrap to its associated data.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rig import CIPHER, LINK, SCI, SocketLink
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from gate_rig import Gate

from keymgmt.agents.agent import Agent
from keymgmt.agents.config import AgentConfig
from keymgmt.agents.identity import Candidate
from keymgmt.derive import associated_data, ssci_of
from keymgmt.endstate import EndpointState
from keymgmt.errors import ControlUnavailable, CustodyRefused, CustodyUnavailable
from keymgmt.operations import Ack, Operation
from keymgmt.permit import Permit, PermitKind
from keymgmt.permit_request import PermitRequest


def identity(folder: Path, name: str) -> None:
    """Give an agent a certificate of a throw-away CA."""
    candidate = Candidate(name)
    request = x509.load_pem_x509_csr(candidate.csr.encode())
    key, now = generate_private_key(SECP256R1()), dt.datetime.now(dt.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(request.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, SHA256())
    )
    candidate.adopt(folder, cert.public_bytes(Encoding.PEM).decode())


class FakeKeys:
    """Wraps and unwraps data keys bound to associated data, as transit does."""

    def __init__(self) -> None:
        self.version = 0
        self.wraps: dict[str, tuple[bytes, bytes]] = {}
        self.away = False
        self.decrypts = 0

    def wrap(self, ad: Mapping[str, Any]) -> tuple[str, int]:
        self.version += 1
        ciphertext = f"vault:v{self.version}:{secrets.token_hex(8)}"
        self.wraps[ciphertext] = (associated_data(ad), secrets.token_bytes(32))
        return ciphertext, self.version

    def decrypt(self, link: str, ciphertext: str, associated: bytes) -> bytes:
        assert LINK == link
        if self.away:
            raise CustodyUnavailable("sealed")
        self.decrypts += 1
        bound, key = self.wraps.get(ciphertext, (b"", b""))
        if bound != associated:
            raise CustodyRefused("bad associated data")
        return key


class FakeControl:
    """What one agent's connections reach: operations of a test, orders of its gate."""

    def __init__(self, gate: Gate, endpoint: str) -> None:
        self.gate, self.endpoint = gate, endpoint
        self.queue: list[dict[str, Any]] = []
        self.acks: dict[str, Ack] = {}
        self.polls: list[dict[str, Any]] = []
        self.pulls: list[PermitRequest] = []
        self.kind: PermitKind | None = PermitKind.PERMIT
        self.changes: dict[str, Any] = {}
        self.away = False
        self.lose_next_answer = False
        self.interrupts = 0

    def post(self, path: str, doc: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
        if self.away:
            raise ControlUnavailable("away")
        if path == "/agent/v1/permit":
            return self._permit(json.loads(json.dumps(doc)))
        self.polls.append(dict(doc))
        for ack in doc["acks"]:
            self.acks[ack["op_id"]] = Ack.from_json(ack)
        if self.lose_next_answer:
            self.lose_next_answer = False
            raise ControlUnavailable("lost")
        operations = [{"poll_nonce": doc["nonce"]} | op for op in self.queue]
        self.queue.clear()
        return json.dumps({"nonce": doc["nonce"], "operations": operations, "server_time_ns": "0"}).encode()

    def interrupt(self) -> None:
        self.interrupts += 1

    def _permit(self, doc: dict[str, Any]) -> bytes:
        request = PermitRequest.from_json(doc, agent="x")
        self.pulls.append(request)
        if self.kind is None:
            raise ControlUnavailable("no order")
        return self.gate.answer(self.order(request))

    def order(self, request: PermitRequest) -> Permit:
        fields = {
            "endpoint": self.endpoint,
            "nonce": request.nonce,
            "boot_id": request.boot_id,
            "secy_id": request.secy_id,
            "sample_digest": request.sample.digest(),
            "violation_generation": request.violation_generation,
        }
        assert self.kind is not None
        return self.gate.permit(self.kind, **(fields | self.changes))


class Desk:
    """Two agents on a `SocketLink`, driven step by step as a conductor would."""

    def __init__(self, link: SocketLink) -> None:
        self.link, self.gate, self.keys = link, Gate(), FakeKeys()
        self.controls = {end: FakeControl(self.gate, end) for end in "ab"}
        self.token, self.holder = 1, "c1"
        self._seq = itertools.count(1)
        for end in "ab":
            identity(link.folder / f"agent-{end}", f"{LINK}-{end}")
        self.agents = {end: self.agent(end) for end in "ab"}

    def config(self, end: str) -> AgentConfig:
        peer = "b" if end == "a" else "a"
        return AgentConfig.from_json(
            {
                "name": f"{LINK}-{end}",
                "link": LINK,
                "endpoint": end,
                "sci": SCI[end],
                "peer_sci": SCI[peer],
                "control": self.link.configs[end]["control"],
                "control_plane": {"host": "127.0.0.1", "port": 1, "ca": "ca.pem"},
                "openbao": {"host": "127.0.0.1", "port": 1, "ca": "ca.pem"},
                "bao": {"keys_mount": "links-e1"},
                "permit_roots": {name: key.hex() for name, key in self.gate.roots.items()},
                "folder": str(self.link.folder / f"agent-{end}"),
                "timers": {"clean_ms": 300},
            }
        )

    def agent(self, end: str) -> Agent:
        """A fresh life of an agent on the same folder."""
        agent = Agent(self.config(end))
        agent._poll_connection = agent._permit_connection = self.controls[end]  # type: ignore[assignment]
        agent.executor.keying.keys = self.keys
        return agent

    def restart(self, end: str) -> None:
        self.agents[end] = self.agent(end)

    def send(self, end: str, kind: str, params: dict[str, Any] | None = None, **changes: Any) -> str:
        """Put an operation into an agent's queue; return its id."""
        doc = {
            "op_id": secrets.token_hex(4),
            "link": LINK,
            "kind": kind,
            "token": self.token,
            "holder": self.holder,
            "op_seq": next(self._seq),
            "time_to_act_ms": 5_000,
            "rotation": "r1",
            "params": params or {},
        } | changes
        Operation.from_json({"poll_nonce": "00" * 16} | doc)
        self.controls[end].queue.append(doc)
        return str(doc["op_id"])

    def do(self, end: str, kind: str, params: dict[str, Any] | None = None, **changes: Any) -> Ack:
        """Send an operation, let the agent poll until its acknowledgement is there."""
        op_id = self.send(end, kind, params, **changes)
        self.agents[end].poll()
        self.agents[end].poll()
        return self.controls[end].acks[op_id]

    def done(
        self, end: str, kind: str, params: dict[str, Any] | None = None, **changes: Any
    ) -> dict[str, Any]:
        ack = self.do(end, kind, params, **changes)
        assert "done" == ack.status, ack
        return dict(ack.result)

    def state(self, end: str) -> EndpointState:
        return EndpointState.from_json(self.done(end, "read")["state"])

    def prepare(self, rotation: str = "r1", an: int = 0) -> dict[str, Any]:
        """Have both ends prepare; return the associated data."""
        nonces = {}
        for end, peer in (("a", "b"), ("b", "a")):
            plan = {"an": an, "cipher": CIPHER, "tx_sci": SCI[end], "rx_sci": SCI[peer]}
            plan["ssci"] = ssci_of(SCI[end], SCI[peer])
            nonces[end] = self.done(end, "prepare", plan, rotation=rotation)["nonce"]
        return {
            "link": LINK,
            "rotation": rotation,
            "cipher": CIPHER,
            "an": an,
            "scis": [SCI["a"], SCI["b"]],
            "nonce_a": nonces["a"],
            "nonce_b": nonces["b"],
        }

    def wrapped(self, ad: dict[str, Any]) -> dict[str, Any]:
        ciphertext, version = self.keys.wrap(ad)
        return {"an": ad["an"], "cipher": CIPHER, "ciphertext": ciphertext, "key_version": version, "ad": ad}

    def install(self, rotation: str = "r1", an: int = 0) -> dict[str, dict[str, Any]]:
        params = self.wrapped(self.prepare(rotation, an))
        return {end: self.done(end, "install", params, rotation=rotation) for end in "ab"}

    def key(self, rotation: str = "r1", an: int = 0) -> dict[str, dict[str, Any]]:
        """Walk a whole first keying or rotation, without retiring."""
        installed = self.install(rotation, an)
        for end in "ab":
            key_id = installed[end]["key_ids"]["tx"]
            self.done(
                end, "select_tx", {"an": an, "key_id": key_id, "revert_after_ms": 9_000}, rotation=rotation
            )
        for end in "ab":
            self.done(end, "confirm", {"an": an}, rotation=rotation)
        return installed

    def open(self) -> None:
        """Let both agents pull a permit and check once."""
        for agent in self.agents.values():
            agent.pull()
            agent.check()
