"""The rotation side as it runs: OpenBao, conductor, hub over mTLS, agents, data planes, relay, traffic.

Only the gate is a stand-in (`AlwaysOpen`): it signs a permit for whoever asks. Left out: admission, ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from evidence.database import Database
from keymgmt.agents.config import BaoPaths, Server
from keymgmt.agents.enrol import enrol
from keymgmt.bell import Bell
from keymgmt.conductor import Conductor
from keymgmt.custody_openbao import OpenBaoLinkKeys, OpenBaoSigner
from keymgmt.drivers.software import SoftwareDriver
from keymgmt.drivers.software_loop import ask
from keymgmt.drivers.software_ports import free_ports
from keymgmt.forkserver import ForkServer
from keymgmt.hub import AgentHub
from keymgmt.limits import Limits
from keymgmt.model import EndpointSpec, LinkSpec, ProfileSpec
from keymgmt.openbao import OpenBaoChild, ServerTls
from keymgmt.permit import Permit, PermitKind, SignerStatement, certify, issue, key_id_of
from keymgmt.permit_request import PermitRequest
from keymgmt.processes import Spawned, end
from keymgmt.provision import OpenBaoProvisioner, open_embedded
from keymgmt.rotation import Rotation
from policy_engine.listeners import Listeners, ListenerSpec
from policy_engine.tls_material import TlsFiles

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "keymgmt"))

from bao_server import make_tls

SECOND = 1_000_000_000
CANARY = b"plaintext-canary-of-the-live-test"
CIPHER = "GCM-AES-XPN-256"


class AlwaysOpen:
    """Signs a permit for whoever asks; decides nothing. The delegated key is certified by `permit-root`."""

    def __init__(self, root: OpenBaoSigner) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._seq = 0
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.root_key = root.public_key()
        statement = SignerStatement(key_id_of(public), public, 1, time.time_ns() + 3600 * SECOND)
        self._statement = certify(statement, key_id_of(self.root_key), root.sign)
        self._signer = statement.key_id

    async def answer(self, request: PermitRequest) -> bytes:
        self._seq += 1
        permit = Permit(
            kind=PermitKind.PERMIT,
            link=request.link,
            endpoint=request.endpoint,
            epoch=1,
            seq=self._seq,
            nonce=request.nonce,
            boot_id=request.boot_id,
            secy_id=request.secy_id,
            ttl_ms=60_000,
            max_hold_ms=60_000,
            arm_ms=5_000,
            posture_generation=1,
            sample_digest=request.sample.digest(),
            violation_generation=request.violation_generation,
            signer=self._signer,
        )
        return issue(permit, self._statement, self._key.sign)


class Live:
    """One link, everything real. Use `async with`."""

    def __init__(self, folder: Path, link: str = "cw-gcp-1") -> None:
        self.folder = folder
        self.run = Path(tempfile.mkdtemp(prefix="sgl-", dir="/tmp"))
        profile = ProfileSpec(
            "p",
            cipher=CIPHER,
            overlap_ns=SECOND // 2,
            step_deadline_ns=8 * SECOND,
            revert_after_ns=6 * SECOND,
            total_deadline_ns=60 * SECOND,
            arm_ns=5 * SECOND,
        )
        self.link = LinkSpec(
            link,
            profile,
            EndpointSpec("a", "cw-us-east", "02000000000a0001", f"{link}-a"),
            EndpointSpec("b", "gcp-us-central", "02000000000b0001", f"{link}-b"),
        )
        self.limits = Limits(poll_hold_ms=2_000, retry_first_ms=500)
        self.spawned: dict[str, Spawned] = {}
        self.agent_docs: dict[str, dict[str, Any]] = {}
        self.plane_docs: dict[str, dict[str, Any]] = {}
        self.bell = Bell()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start(self) -> None:
        tls = make_tls(self.folder / "tls")
        self.bao = OpenBaoChild(self.folder / "openbao", tls)
        self.bao.spawn()
        self.fork = ForkServer.start(self.run / "fork.sock", self.folder / "fork.log")
        self.bao.wait_active()
        self.store = open_embedded(self.bao)
        provisioner = OpenBaoProvisioner(
            self.store.session("provisioner"), self.store.session("enroller"), epoch=self.store.epoch
        )
        provisioner.add_link(self.link.name, (self.link.a.agent or "", self.link.b.agent or ""))
        self.database = Database(self.folder / "test.db")
        self.database.start()
        self.database.create_all()
        self.gate = AlwaysOpen(OpenBaoSigner(self.store.session("gate"), "permit-root"))
        links = {self.link.name: self.link}
        self.hub = AgentHub(
            database=self.database, links=lambda: links, bell=self.bell, permits=self.gate, limits=self.limits
        )
        await self._listen(tls)
        self._data_plane()
        for side in ("a", "b"):
            self._agent(side, provisioner)
        self.conductor = self.make_conductor()
        self._tasks.append(asyncio.create_task(self.conductor.run()))

    def make_conductor(self) -> Conductor:
        links = {self.link.name: self.link}
        return Conductor(
            database=self.database,
            links=lambda: links,
            keys=OpenBaoLinkKeys(self.store.session("conductor"), epoch=self.store.epoch),
            presence=self.hub,
            bell=self.bell,
            limits=self.limits,
        )

    async def stop_conductor(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def run_conductor(self) -> None:
        self.conductor = self.make_conductor()
        self._tasks.append(asyncio.create_task(self.conductor.run()))

    async def _listen(self, tls: ServerTls) -> None:
        ca = self.folder / "agents-ca.pem"
        ca.write_text(self.store.agents_ca)
        spec = ListenerSpec(
            "agents",
            self.hub,
            tls=TlsFiles(tls.cert_file, tls.key_file, ca),
            client_cert="required",
        )
        self.listeners = Listeners([spec])
        await self.listeners.start()

    def _data_plane(self) -> None:
        """UDP: traffic <-> controlled port | data plane | wire <-> relay <-> wire | data plane | ..."""
        ua, ca, wa, ra, rb, wb, cb, ub = (["127.0.0.1", port] for port in free_ports(8))
        ends = {"a": (ca, ua, wa, ra), "b": (cb, ub, wb, rb)}
        for side, (controlled, user, wire, relay) in ends.items():
            doc = {
                "name": f"{self.link.name}-{side}",
                "sci": self.link.end(side).sci,
                "peer_sci": self.link.peer(side).sci,
                "cipher": CIPHER,
                "controlled": {"bind": controlled, "peer": user},
                "wire": {"bind": wire, "peer": relay},
                "control": self.control(side),
                "allow_faults": True,
            }
            self.plane_docs[side] = doc
            self._spawn("dataplane", f"dp-{side}", doc)
        link = {"name": self.link.name, "a": {"bind": ra, "peer": wa}, "b": {"bind": rb, "peer": wb}}
        canary = CANARY.hex()
        self._spawn("relay", "relay", {"control": self._socket("relay"), "canary": canary, "links": [link]})
        users = {"name": self.link.name, "a": {"bind": ua, "peer": ca}, "b": {"bind": ub, "peer": cb}}
        doc = {"control": self._socket("traffic"), "canary": canary, "links": [users], "sending": False}
        self._spawn("traffic", "traffic", doc)

    def _agent(self, side: str, provisioner: OpenBaoProvisioner) -> None:
        name = self.link.end(side).agent or ""
        folder = self.folder / "agents" / name
        bao = {"host": "127.0.0.1", "port": self.bao.port, "ca": str(self.bao.tls.ca_file)}
        paths = {"keys_mount": "links-e1", "approle_mount": "enrol"}
        ticket = provisioner.enrol(name, self.link.name)
        enrol(
            server=Server.from_json(bao),
            paths=BaoPaths(**paths),
            name=name,
            role_id=ticket.role_id,
            wrapping_token=ticket.wrapped_secret_id,
            folder=folder,
        )
        root = self.gate.root_key
        self.agent_docs[side] = {
            "name": name,
            "link": self.link.name,
            "endpoint": side,
            "sci": self.link.end(side).sci,
            "peer_sci": self.link.peer(side).sci,
            "control": self.control(side),
            "control_plane": {"host": "127.0.0.1", "port": self.listeners.port("agents"), "ca": bao["ca"]},
            "openbao": bao,
            "bao": paths,
            "permit_roots": {key_id_of(root): root.hex()},
            "folder": str(folder),
            "timers": {"poll_timeout_ms": 6_000, "permit_retry_ms": 300},
        }
        self.start_agent(side)

    def respawn_dataplane(self, side: str) -> None:
        end(self.spawned[f"dp-{side}"])
        self._spawn("dataplane", f"dp-{side}", self.plane_docs[side])

    def start_agent(self, side: str) -> None:
        self._spawn("agent", f"agent-{side}", self.agent_docs[side])

    def _spawn(self, role: Any, name: str, doc: dict[str, Any]) -> None:
        record, log = self.folder / "run" / f"{name}.json", self.folder / f"{name}.log"
        self.spawned[name] = self.fork.spawn(role, name, doc, record=record, log=log)

    def kill(self, name: str) -> None:
        os.kill(self.spawned[name].pid, signal.SIGKILL)

    def _socket(self, name: str) -> str:
        return str(self.run / f"{name}.sock")

    def control(self, side: str) -> str:
        return self._socket(f"dp-{side}")

    def driver(self, side: str) -> SoftwareDriver:
        return SoftwareDriver(self.control(side))

    def traffic(self, command: str = "stats") -> dict[str, Any]:
        return ask(self._socket("traffic"), command)

    def streams(self) -> dict[str, Any]:
        found: dict[str, Any] = self.traffic()["links"][self.link.name]
        return found

    def relay(self) -> dict[str, Any]:
        found: dict[str, Any] = ask(self._socket("relay"), "stats")["links"][self.link.name]
        return found

    # --- waiting

    async def until(self, ready: Callable[[], bool], what: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                raise AssertionError(f"not in time: {what}; {await self._why()}")
            await asyncio.sleep(0.05)

    async def _why(self) -> str:
        status = await self.conductor.status(self.link.name)
        state = status.rotation
        return f"{status.why} {status.last_end} {status.last_why} {state.trail if state else ''}"

    async def next_end(self, known: set[str], seconds: float = 30) -> Rotation:
        """The next rotation that ends and is not in `known`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for state in await self.conductor.journal.recent(self.link.name, 20):
                if state.end is not None and state.rotation not in known:
                    return state
            await asyncio.sleep(0.05)
        raise AssertionError(f"no rotation ended: {await self._why()}")

    async def known(self) -> set[str]:
        return {state.rotation for state in await self.conductor.journal.recent(self.link.name, 50)}

    async def rotate(self) -> Rotation:
        known = await self.known()
        await self.conductor.rotate(self.link.name, "the test")
        return await self.next_end(known)

    async def open_with_traffic(self) -> None:
        """First keying done, path open at both ends, traffic flowing in both directions."""
        first = await self.next_end(set())
        assert first.end == "complete", (first.end, first.why)
        await self.until(
            lambda: all(self.driver(side).read().path == "open" for side in ("a", "b")), "path open"
        )
        self.traffic("resume")
        await self.until(
            lambda: all(way["received"] > 50 for way in self.streams().values()), "traffic flows"
        )

    async def _stop(self) -> None:
        await self.stop_conductor()
        for process in self.spawned.values():
            end(process)
        with contextlib.suppress(AttributeError):
            self.hub.close()
            await self.listeners.stop()
        for name in ("fork", "bao", "database"):
            part = getattr(self, name, None)
            if part is not None:
                part.stop()
