"""Composition root of the embedded mode: what runs in the event loop, wired by hand.

Ledger and sequencer, hub and conductor, gate, webhook, API, witness. Processes (OpenBao, agents, data
planes, relay, traffic) are the main thread's (`embedded.up`); this part neither starts nor stops them.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from evidence import durable, outbox
from evidence.database import Database
from evidence.ledger import Ledger
from evidence.logs import get_logger
from evidence.records import Draft
from evidence.scope import ESTATE
from evidence.sequencer import Sequencer
from evidence.spool import Spool
from keymgmt.bell import Bell
from keymgmt.conductor import Conductor
from keymgmt.custody_openbao import OpenBaoLinkKeys, OpenBaoSigner
from keymgmt.hub import AgentHub
from keymgmt.limits import LIMITS as KEY_LIMITS
from keymgmt.observed import ViolationReport
from keymgmt.provision import KeyStore
from keymgmt.samples import Sample
from policy_engine.admission.app import AdmissionApp
from policy_engine.admission.deps import AdmissionDeps, Policy
from policy_engine.api import create_api
from policy_engine.embedded import accept, callers
from policy_engine.embedded.ca import Pair
from policy_engine.embedded.chores import (
    SIGNER_CHECK_SECONDS,
    SPOOL_CHECK_SECONDS,
    PermitKey,
    SpoolWatch,
    Verdicts,
    every,
    reload_certificates,
    write_trust,
)
from policy_engine.embedded.contact import Contact
from policy_engine.embedded.custody import CheckpointMirror, PermitStore
from policy_engine.embedded.estate import bare_links, keyed_links
from policy_engine.embedded.health import LOOK_SECONDS, SignedTicks, floor, warnings
from policy_engine.embedded.keystates import KeyStates
from policy_engine.embedded.services import EmbeddedServices
from policy_engine.embedded.state import StateFolder
from policy_engine.embedded.tasks import Tasks
from policy_engine.gate.gather import fresh_for_ns
from policy_engine.gate.loop import Gate, GatePorts
from policy_engine.gate.permits import PermitIssuer
from policy_engine.gate.verdicts import VerdictBatch, links_of_tenants
from policy_engine.inventory.static import StaticLookup
from policy_engine.listeners import Listeners, ListenerSpec, allow_connections, settle_heap
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.rules.bundle import Bundle, shipped
from policy_engine.rules.wasm import WasmEngine
from policy_engine.settings import Settings
from policy_engine.tls_material import TlsFiles
from policy_engine.witness import Witness

SPOOL_ID: Final = "admission"
SEQUENCER: Final = "sequencer"  # the last part to end: it appends and signs what the others leave
DRAIN_SECONDS: Final = 15.0
log = get_logger("policy_engine.embedded")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the main thread has ready before the event loop starts.

    Attributes:
        settings: Settings of this process.
        state: The state folder.
        ports: Listener name -> TCP port.
        tls: Listener name -> certificate and key.
        database: Started, schema up to date.
        keystore: The provisioned key store.
        resources: Declared state, loaded and checked.
        estate_folder: Where it was read from.
        describe: Processes and key store as the main thread sees them.
        contact: When the key store last answered.
        allow_faults: Whether data planes accept fault injection (the demo's and drills' systems only).
    """

    settings: Settings
    state: StateFolder
    ports: Mapping[str, int]
    tls: Mapping[str, Pair]
    database: Database
    keystore: KeyStore
    resources: ResourceSet
    estate_folder: str
    describe: Callable[[], Mapping[str, Any]]
    contact: Contact
    allow_faults: bool = False


class System:
    """Everything that runs in the event loop. Make and use it inside that loop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.instance = secrets.token_hex(8)
        self.clock: Callable[[], int] = time.time_ns
        self.tasks = Tasks()
        self._draining = False
        self._stop_sequencer = asyncio.Event()
        self._started_ns = self.clock()

    # --- start ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every part in the order in which they need each other."""
        allow_connections()
        self._open_policy()
        await self._accept()
        self._open_ledger()
        await self.signed.look()
        self._open_keys()
        await self._open_gate()
        self._open_doors()
        await self.listeners.start()
        settle_heap()
        self._run_tasks()

    def _open_policy(self) -> None:
        self.bundle: Bundle = shipped()
        self.policy = Policy(WasmEngine(self.bundle), self.bundle)

    async def _accept(self) -> None:
        """Accept declared state and bundle; issue the first credentials; note enabled faults."""
        parts, now = self.parts, self.clock()
        authorities = callers.cluster_authorities(
            parts.resources, parts.state.folder("tls") / "clusters", dt.datetime.now(dt.UTC)
        )

        def write(conn: Any) -> tuple[int, Mapping[Path, SecretStr]]:
            generation = accept.accept_resources(conn, parts.resources, parts.estate_folder, now)
            accept.accept_bundle(conn, self.bundle, "digest in the wheel", now)
            tokens = callers.first_tokens(conn, parts.resources, parts.state.folder("tokens"), now)
            if parts.allow_faults:
                public = {"component": "data planes", "since": str(now), "faults": ["allowed"]}
                outbox.put(conn, Draft("faults_enabled", ESTATE, accept.SOURCE, now, public), now_ns=now)
            return generation, tokens

        generation, tokens = await parts.database.write(write)
        for file, token in tokens.items():
            durable.replace(file, (token.get_secret_value().encode(),))
        self._accepted_bundle = self.bundle.bundle_digest
        self.unapproved = await parts.database.read(lambda conn: accept.unapproved(conn, parts.resources))
        self.resources = parts.resources.with_generation(generation)
        self.links = keyed_links(self.resources)
        self.bare = bare_links(self.resources)
        self.tenants_of = links_of_tenants(self.resources)
        self.callers = callers.Callers(parts.database, self.resources, authorities, self.clock)
        await self.callers.read()

    def _client_authorities(self) -> str:
        return self.callers.table.client_ca_pem()

    def _open_ledger(self) -> None:
        parts = self.parts
        self.ledger = Ledger.open(parts.database)
        self.scope_ids = self.ledger.ensure_scopes(ESTATE, *sorted(self.resources.tenants))
        self.spool = Spool(parts.state.folder("spool"), SPOOL_ID)
        self.spool.start()
        self.spool_watch = SpoolWatch(self.spool)
        self.signed = SignedTicks(parts.database, parts.settings.tick_seconds)
        session = parts.keystore.session("ledger")
        self.ledger_key = OpenBaoSigner(session, "ledger")
        self.sequencer = Sequencer(
            parts.database,
            self.ledger,
            [self.spool],
            mirror=CheckpointMirror(session, parts.contact),
            signer=self.ledger_key,
            tick_seconds=parts.settings.tick_seconds,
        )

    def _open_keys(self) -> None:
        parts, settings = self.parts, self.parts.settings
        limits = replace(
            KEY_LIMITS,
            poll_hold_ms=int(settings.poll_seconds * 1000),
            reconcile_ms=int(settings.reconcile_seconds * 1000),
        )
        bell = Bell()
        self.hub = AgentHub(
            database=parts.database,
            links=lambda: self.links,
            bell=bell,
            limits=limits,
            on_sample=self._on_sample,
            on_violation=self._on_violation,
        )
        self.key_states = KeyStates(lambda: self.conductor.journal, lambda: self.links)
        keys = OpenBaoLinkKeys(parts.keystore.session("conductor"), epoch=parts.keystore.epoch)
        self.conductor = Conductor(
            database=parts.database,
            links=lambda: self.links,
            keys=keys,
            presence=self.hub,
            bell=bell,
            holder="embedded",  # the state folder's lock lets one live: a killed one's lease is its own
            limits=limits,
            on_change=self.key_states.ring,
        )

    async def _open_gate(self) -> None:
        parts = self.parts
        ports = GatePorts(
            database=parts.database,
            links=lambda: self.links,
            bare=lambda: self.bare,
            keys=self.key_states.get,
            clock=self.clock,
        )
        self.gate = Gate(ports)
        await self.key_states.refresh()
        await self.gate.load()
        self.samples = VerdictBatch(
            self.clock(),
            lambda link: self.tenants_of.get(link, frozenset()),
            lambda link: fresh_for_ns(self.links[link]),
            faulty=parts.allow_faults,
        )
        self.verdicts = Verdicts(parts.database, self.samples, self.clock)
        custody = PermitStore(parts.keystore.session("gate"))
        longest = max((x.profile.ttl_ns + x.profile.max_hold_ns for x in self.links.values()), default=0)
        self.permit_key = await asyncio.to_thread(
            PermitKey, custody, parts.keystore.epoch, self.clock, longest
        )
        self.hub.permits = PermitIssuer(self.gate, lambda: self.permit_key.signer)

    def _open_doors(self) -> None:
        parts, host = self.parts, self.parts.settings.host
        lookup = StaticLookup()
        self.admission_deps = AdmissionDeps(
            policy=lambda: self.policy,
            resources=lambda: self.resources,
            postures=self.gate.postures,
            lookup=lambda _cluster: lookup,
            identities=lambda: self.callers.table,
            scope_ids=self.scope_ids.__getitem__,
            spool=self.spool,
            boot_id=self.instance,
            clock=self.clock,
        )
        admission = self.admission = AdmissionApp(self.admission_deps)
        registry = CollectorRegistry()
        registry.register(admission.metrics)
        self.services = EmbeddedServices(
            database=parts.database,
            ledger=self.ledger,
            conductor=self.conductor,
            gate=self.gate,
            admission=self.admission_deps,
            tenants_of=lambda: self.tenants_of,
            bare=lambda: self.bare,
            describe=self.describe,
            not_ready=self.not_ready,
            key_store_away=lambda: parts.contact.away,
            reload_identities=self.callers.read,
            state=parts.state.root,
        )
        api = create_api(
            self.services, clock=self.clock, admission=admission, registry=registry, version=_version()
        )
        agents_ca = parts.keystore.agents_ca

        def tls(name: str, client_ca: Callable[[], str] | None = None) -> TlsFiles:
            return TlsFiles(parts.tls[name].cert, parts.tls[name].key, client_ca)

        self.listeners = Listeners(
            [
                ListenerSpec(
                    "admission",
                    admission,
                    host,
                    parts.ports["admission"],
                    tls("admission", self._client_authorities),
                    "optional",
                ),
                ListenerSpec("api", api, host, parts.ports["api"], tls("api"), "none"),
                ListenerSpec(
                    "agents",
                    self.hub,
                    host,
                    parts.ports["agents"],
                    tls("agents", lambda: agents_ca),
                    "required",
                ),
            ]
        )

    def _run_tasks(self) -> None:
        witness = Witness(
            self.parts.database,
            self.instance,
            {
                "admission": self._serves,
                "conductor": lambda: {"status": "ok" if self.conductor.term is not None else "not leading"},
                "gate": lambda: {"links": len(self.links)},
                "ledger": lambda: {"status": self.describe()["ledger"].replace("appends", "ok", 1)},
            },
            self.clock,
        )
        for name, work in {
            SEQUENCER: self.sequencer.run(self._stop_sequencer),
            "conductor": self.conductor.run(),
            "key states": self.key_states.run(),
            "gate": self.gate.run(),
            "verdicts": every(self.parts.settings.verdict_seconds, self._flush_verdicts),
            "permit key": every(SIGNER_CHECK_SECONDS, self.permit_key.renew),
            "certificates": reload_certificates(self.listeners),
            "witness": witness.run(),
            "spool watch": every(SPOOL_CHECK_SECONDS, self.spool_watch.look),
            "signed ticks": every(LOOK_SECONDS, self.signed.look),
            "callers": every(callers.REFRESH_SECONDS, self.callers.refresh),
            "trust file": write_trust(
                self.ledger, self.ledger_key, self.scope_ids, self.parts.state.root / "trust.json"
            ),
        }.items():
            self.tasks.spawn(name, work)

    # --- callbacks ----------------------------------------------------------------------

    def _on_sample(self, sample: Sample) -> None:
        self.gate.on_sample(sample)
        self.samples.add(sample, self.clock())

    def _on_violation(self, report: ViolationReport) -> None:
        self.gate.on_violation(report.link, report.endpoint, report.violation.code)

    async def _flush_verdicts(self) -> None:
        await self.verdicts.flush(sorted(self.links))

    # --- what it says of itself -------------------------------------------------------------------------

    def _serves(self) -> Mapping[str, Any]:
        return {
            "resource_digest": self.resources.digest,
            "generation": self.resources.generation,
            "bundle_digest": self.bundle.bundle_digest,
            "policy_digest": self.bundle.policy_digest,
        }

    def not_ready(self) -> Mapping[str, str]:
        """Check name -> reason; empty means ready."""
        found = floor(
            trusted=self.policy.bundle.bundle_digest == self._accepted_bundle,
            generation=self.resources.generation,
            posture_age_s=self.gate.age_seconds(),
            spool=self.spool_watch.trouble,
        )
        return found | ({"draining": "the control plane is stopping"} if self._draining else {})

    def describe(self) -> Mapping[str, Any]:
        """Status for the API and `sluicegate status`."""
        told = self.parts.describe()
        ledger = self.signed.state(str(self.sequencer.failure or ""), self.parts.contact, self.clock())
        parts = {"ledger": ledger, "spool": self.spool_watch.trouble or "writable"}
        return {
            "mode": "embedded",
            "custody": "embedded (not separated)",
            "evidence": "self-asserted",
            "faults": "enabled" if self.parts.allow_faults else "off",
            "instance": self.instance,
            "started_ns": str(self._started_ns),
            **self._serves(),
            "conductor": "leads" if self.conductor.term is not None else "waits for the lease",
            **parts,
            "ledger_signed_ns": str(self.signed.last_ns or "") or None,
            **told,
            "warnings": [
                *warnings({**parts, **told}, self.not_ready()),
                *accept.warning(self.unapproved),
            ],
        }

    # --- stop -------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Drain the doors, give the lease back, append and sign what is there."""
        self._draining = True
        self.hub.close()
        await self.listeners.stop()
        await self.admission.flush_summary()
        await self._flush_verdicts()
        await self.tasks.cancel(but=SEQUENCER)
        self._stop_sequencer.set()
        await self.tasks.join(SEQUENCER, DRAIN_SECONDS)
        self.spool.stop()
        self.policy.engine.close()  # type: ignore[attr-defined]


def _version() -> str:
    from importlib.metadata import version

    return version("sluicegate")
