"""A whole webhook for tests: example estate, real Wasm engine, real spool, real TLS, an API server's credentials."""

import asyncio
import contextlib
import functools
import hashlib
import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from evidence.records import RecordParts, decode_frame
from evidence.spool import Spool
from policy_engine.admission.app import AdmissionApp
from policy_engine.admission.deps import AdmissionDeps, Policy
from policy_engine.admission.identities import ClusterIdentity, Identities
from policy_engine.facts import Lookup, NoLookup
from policy_engine.gate.posture import LinkPosture
from policy_engine.limits import LIMITS, Limits
from policy_engine.listeners import Listeners, ListenerSpec
from policy_engine.resources.load import load
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.rules.bundle import Bundle, shipped
from policy_engine.rules.engine import Engine
from policy_engine.rules.wasm import WasmEngine
from policy_engine.tls_material import TlsFiles

ROOT = Path(__file__).resolve().parents[3]
ESTATE = ROOT / "deploy/examples/estate"
SITE = "node-restriction.kubernetes.io/sluicegate-site"
DATASETS, SEGMENTS = "sluicegate.io/datasets", "sluicegate.io/segments"
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"

Json = dict[str, Any]

# Made once per test process: none of it changes.
CLUSTERS = ("train-us", "train-eu")


@functools.cache
def parts() -> tuple[ResourceSet, Bundle, WasmEngine]:
    """The example estate, the shipped bundle, its engine."""
    bundle = shipped()
    return load(ESTATE), bundle, WasmEngine(bundle)


@functools.cache
def authority(name: str) -> trustme.CA:
    """The CA of the server, or of one cluster's API server."""
    return trustme.CA()


@functools.cache
def server_leaf() -> trustme.LeafCert:
    """The webhook's certificate."""
    return authority("server").issue_cert("localhost")


@functools.cache
def client_context(cluster: str | None) -> ssl.SSLContext:
    """What an API server connects with: trust, and the client certificate of a cluster."""
    context = ssl.create_default_context()
    authority("server").configure_trust(context)
    if cluster is not None:
        authority(cluster).issue_cert(common_name="kube-apiserver").configure_cert(context)
    return context


@dataclass
class Answer:
    """What came back: HTTP status, headers, and the review's response if there is one."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def response(self) -> Json:
        document = json.loads(self.body)
        assert document["kind"] == "AdmissionReview"
        assert document["apiVersion"] == "admission.k8s.io/v1"
        response: Json = document["response"]
        return response

    @property
    def allowed(self) -> bool:
        assert self.status == 200, (self.status, self.body)
        return bool(self.response["allowed"])

    @property
    def message(self) -> str:
        return str(self.response.get("status", {}).get("message", ""))


def pod(
    name: str = "train", *, site: str | None = "gcp-us-central", annotations: Json | None = None, **spec: Any
) -> Json:
    """A Pod that declares what it reads; allowed as it stands in acme-train."""
    selector = {SITE: site} if site else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": annotations if annotations is not None else {DATASETS: "us-corpus"},
        },
        "spec": {
            "nodeSelector": selector,
            "containers": [{"name": "main", "image": "registry.example.com/ml/train:1.0"}],
            **spec,
        },
    }


def review(
    obj: Json | None,
    *,
    namespace: str = "acme-train",
    operation: str = "CREATE",
    uid: str = UID,
    **request: Any,
) -> Json:
    """An AdmissionReview around an object."""
    seen = obj or request.get("oldObject") or {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
    group, _, version = seen["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": seen["kind"]}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": kind,
            "resource": {"group": group, "version": version, "resource": seen["kind"].lower() + "s"},
            "name": seen["metadata"].get("name", ""),
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": "grace.hopper", "groups": ["research", "system:authenticated"]},
            "object": obj,
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


@dataclass
class World:
    """A running webhook. Providers are attributes, so that a test can change what they return."""

    folder: Path
    limits: Limits = LIMITS
    lookup: Lookup = field(default_factory=NoLookup)
    engine: Engine | None = None

    def __post_init__(self) -> None:
        self.resources, self.bundle, wasm = parts()
        self.engine = self.engine or wasm
        self.links: dict[str, LinkPosture] = {}
        for name, link in self.resources.links.items():
            if link.encryption == "required":
                self.posture(name, "open", "encrypted", "encrypted")
        self.tokens = {"train-us": secrets.token_hex(32), "train-eu": secrets.token_urlsafe(32)}
        self.identities = Identities(
            ClusterIdentity(
                cluster,
                (authority(cluster).cert_pem.bytes(),),
                token_hashes={hashlib.sha256(self.tokens[cluster].encode()).digest(): 2**63 - 1},
            )
            for cluster in CLUSTERS
        )
        self.scopes = {name: hashlib.md5(name.encode()).hexdigest() for name in ("estate", "acme", "globex")}
        self.spool = Spool(self.folder / "spool", "webhook-0")
        self.now = time.time_ns

    def posture(self, link: str, state: Any, posture: Any, reason: str, *, fresh_s: int = 3600) -> None:
        now = time.time_ns()
        self.links[link] = LinkPosture("required", state, posture, reason, now, now + fresh_s * 10**9, 1)

    def deps(self) -> AdmissionDeps:
        return AdmissionDeps(
            policy=lambda: Policy(self.engine, self.bundle),  # type: ignore[arg-type]
            resources=lambda: self.resources,
            postures=lambda: self.links,
            lookup=lambda _cluster: self.lookup,
            identities=lambda: self.identities,
            scope_ids=self.scopes.__getitem__,
            spool=self.spool,
            boot_id="boot-1",
            clock=lambda: self.now(),  # noqa: PLW0108 - a test may move it
            limits=self.limits,
        )

    async def start(self) -> None:
        self.spool.start()
        self.app = AdmissionApp(self.deps())
        leaf = server_leaf()
        cert, key = self.folder / "tls.crt", self.folder / "tls.key"
        cert.write_bytes(leaf.cert_chain_pems[0].bytes())
        key.write_bytes(leaf.private_key_pem.bytes())
        files = TlsFiles(cert, key, self.identities.client_ca_pem)
        spec = ListenerSpec("admission", self.app, tls=files, client_cert="optional")
        self.listeners = Listeners([spec], drain_linger_s=0.01)
        await self.listeners.start()
        self.port = self.listeners.port("admission")

    async def stop(self) -> None:
        await self.listeners.stop()
        self.spool.stop()

    async def ask(self, document: Json | bytes, *, cluster: str = "train-us", **how: Any) -> Answer:
        """One review on a connection of its own, by certificate."""
        async with self.connection(cluster) as connection:
            return await connection.post(f"/admit/{cluster}", document, **how)

    @contextlib.asynccontextmanager
    async def connection(self, certificate_of: str | None) -> AsyncIterator["Connection"]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.port,
            ssl=client_context(certificate_of),
            server_hostname="localhost",
            limit=2**22,
        )
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()

    def records(self) -> list[RecordParts]:
        """Everything in the spool, in order."""
        return [decode_frame(frame) for _, frame in self.spool.read_from(0, 100_000)]


class Connection:
    """A keep-alive connection of an API server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def post(self, path: str, document: Json | bytes, *, headers: Mapping[str, str] = {}) -> Answer:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.head("POST", path, {"content-length": str(len(body)), **headers})
        self.writer.write(body)
        return await self.reply()

    def head(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: localhost", *(f"{k}: {v}" for k, v in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())

    async def reply(self) -> Answer:
        status = int((await self.reader.readline()).split()[1])
        headers: dict[str, str] = {}
        while (line := (await self.reader.readline()).strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name] = value.strip()
        return Answer(status, headers, await self.reader.readexactly(int(headers["content-length"])))


@contextlib.asynccontextmanager
async def running(
    folder: Path, prepare: Callable[[World], None] = lambda _: None, **options: Any
) -> AsyncIterator[World]:
    """A world that is started, and stopped whatever happens."""
    world = World(folder, **options)
    prepare(world)
    await world.start()
    try:
        yield world
    finally:
        await world.stop()
