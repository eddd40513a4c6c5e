"""What the API's operations do in this control plane (`policy_engine.api_services.Services`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from evidence.database import Database
from evidence.errors import ExportRefused
from evidence.ledger import Ledger
from evidence.view import StoredRecord
from keymgmt.conductor import Conductor
from keymgmt.errors import RotationRefused
from keymgmt.scheduler import Wait, never_keyed
from policy_engine.admission.deps import AdmissionDeps
from policy_engine.admission.judge import Judged, judge
from policy_engine.admission.protocol import parse
from policy_engine.errors import BadReview, CouldNotTell, NotFound, UsageError
from policy_engine.gate.loop import Gate
from policy_engine.gate.why import first
from policy_engine.grants import Principal, Reach
from policy_engine.resources.objects import one_of

_NO_UID: Final = "00000000-0000-0000-0000-000000000000"  # of a question that no API server asked

Json = Mapping[str, Any]


class EmbeddedServices:
    """Fills the API's port. Filters by reach; what is outside it does not exist."""

    def __init__(
        self,
        *,
        database: Database,
        ledger: Ledger,
        conductor: Conductor,
        gate: Gate,
        admission: AdmissionDeps,
        tenants_of: Callable[[], Mapping[str, frozenset[str]]],
        bare: Callable[[], Mapping[str, str]],
        describe: Callable[[], Json],
        not_ready: Callable[[], Mapping[str, str]],
        key_store_away: Callable[[], str],
        reload_identities: Callable[[], Awaitable[None]],
        state: Path,
    ) -> None:
        self.database = database
        self._ledger = ledger
        self._conductor = conductor
        self._gate = gate
        self._admission = admission
        self._tenants_of = tenants_of
        self._bare = bare
        self._describe = describe
        self._not_ready = not_ready
        self._key_store_away = key_store_away
        self._reload_identities = reload_identities
        self._state = state

    def status(self, reach: Reach) -> Json:
        """State of every part; a reader of some tenants sees no process ids and no addresses."""
        told = dict(self._describe())
        return told if reach.every else {k: v for k, v in told.items() if k not in {"processes", "state"}}

    def ready(self) -> Mapping[str, str]:
        """What is not ready: check name to reason."""
        return self._not_ready()

    async def links(self, reach: Reach) -> Sequence[Json]:
        """Links in reach with posture, order and key."""
        return [await self._link(name) for name in sorted(self._visible(reach))]

    async def link(self, name: str, reach: Reach) -> Json:
        """One link."""
        if name not in self._visible(reach):
            raise NotFound(f"no link named {name}", fix="see `sluicegate links`")
        return await self._link(name)

    async def rotate(self, name: str, by: Principal) -> Json:
        """Ask the conductor for a rotation."""
        if name not in self._admission.resources().links:
            raise NotFound(f"no link named {name}", fix="see `sluicegate links`")
        if name in self._bare():
            why = never_keyed(self._bare()[name])
            raise UsageError(f"{name}: {why.detail}", fix=why.next)
        try:
            return {"link": name, "rotation": await self._conductor.rotate(name, by.name)}
        except RotationRefused as no:
            raise UsageError(str(no), fix=no.fix or f"see `sluicegate links --why {name}`") from None

    async def decide(self, cluster: str, request: dict[str, Any], reach: Reach) -> Json:
        """Judge a request as the webhook would; nothing is recorded."""
        if reach.every and cluster not in self.clusters():
            raise NotFound(f"no cluster named {cluster}", fix=one_of(cluster, self.clusters()))
        judged = self._judge(cluster, request)
        if not reach.covers_scope(judged.scope):
            raise NotFound(
                "no such namespace in reach",
                fix="name a namespace bound to your tenant; what is bound to none needs a role over *",
            )
        decision = judged.decision
        return {
            "allowed": decision.allowed,
            "exempt": judged.exempt,
            "reasons": [_plain(asdict(reason)) for reason in decision.reasons],
            "warnings": [_plain(asdict(reason)) for reason in decision.warnings],
            "policy_digest": decision.policy_digest,
            "input_digest": decision.input_digest,
            "resource_digest": judged.resource_digest,
        }

    def _judge(self, cluster: str, request: dict[str, Any]) -> Judged:
        asked = {"operation": "CREATE"} | request
        asked["uid"] = request.get("uid") or _NO_UID
        document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        try:
            review = parse(json.dumps(document).encode())
            return judge(review, cluster, self._admission, self._admission.clock())
        except RecursionError:
            raise BadReview("the object is nested too deeply") from None

    async def records(
        self, reach: Reach, *, sensitive: bool, scope: str | None, kind: str | None, after: int, limit: int
    ) -> Json:
        """Records of one scope after a sequence number."""

        def read() -> tuple[list[StoredRecord], int]:
            return self._ledger.read(lambda view: self._page(view, reach, scope, kind, range_=(after, limit)))

        records, size = await asyncio.to_thread(read)
        last = records[-1].seq if records else size - 1
        return {
            "records": [_record(record, sensitive=sensitive) for record in records],
            "next": last if last + 1 < size else None,
        }

    @staticmethod
    def _page(
        view: Any, reach: Reach, scope: str | None, kind: str | None, *, range_: tuple[int, int]
    ) -> tuple[list[StoredRecord], int]:
        visible = {name: identity for name, identity in view.scopes().items() if reach.covers_scope(name)}
        name = scope if scope is not None else next(iter(visible), None)
        if name is None or name not in visible:
            raise NotFound("no such scope in reach")
        after, limit = range_
        size = view.size(visible[name])
        found: list[StoredRecord] = []
        for record in view.records(visible[name], after + 1, size, kind=kind):
            found.append(record)
            if len(found) >= limit:
                break
        return found, size

    async def scopes(self, reach: Reach) -> Sequence[Json]:
        """Scopes in reach with their heads."""

        def read() -> list[Json]:
            return self._ledger.read(
                lambda view: [
                    {"name": name, "id": identity, "size": head.size, "root": head.root.hex()}
                    for name, identity in view.scopes().items()
                    if reach.covers_scope(name)
                    for head in (view.head(identity),)
                ]
            )

        return await asyncio.to_thread(read)

    async def packages(self, reach: Reach) -> Sequence[Json]:
        """Packages in the state folder, of the tenants in reach."""
        found = []
        for path in sorted((self._state / "packages").glob("*.zip")):
            tenant = path.name.partition("_")[0]
            if reach.covers_scope(tenant):
                found.append({"tenant": tenant, "file": path.name, "octets": path.stat().st_size})
        return found

    async def export_package(self, tenant: str, start_ns: int, end_ns: int, by: Principal) -> Json:
        """Export in a process that ends: its libraries never weigh on this one.

        Raises:
            ExportRefused: It cannot be made as asked; the text says why.
            CouldNotTell: The export failed; the text says why.
        """
        out = self._state / "packages" / f"{tenant}_{start_ns}_{end_ns}.zip"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "policy_engine.embedded.evidence_job",
            *(str(self._state), "export", tenant, str(start_ns), str(end_ns), str(out), by.name),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:  # a stop: nobody waits for the package any more
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                process.kill()
            await asyncio.shield(process.wait())
            raise
        try:
            told = json.loads(output)
        except ValueError:
            told = {"error": "the export process ended without an answer"}
        if "error" in told:
            said = ExportRefused if told.get("refused") else CouldNotTell
            raise said(f"export failed: {told['error']}", fix=told.get("fix", ""))
        return {"tenant": tenant, "file": out.name, "octets": out.stat().st_size}

    def tenants(self) -> Collection[str]:
        """Names of the declared tenants."""
        return self._admission.resources().tenants.keys()

    def clusters(self) -> Collection[str]:
        """Names of the declared clusters."""
        return self._admission.resources().clusters.keys()

    async def identities_changed(self) -> None:
        """A path token was issued or revoked."""
        await self._reload_identities()

    def _visible(self, reach: Reach) -> set[str]:
        names = set(self._admission.resources().links)
        if reach.every:
            return names
        users = self._tenants_of()
        return {name for name in names if users.get(name, frozenset()) & reach.tenants}

    async def _link(self, name: str) -> Json:
        declared = self._admission.resources().links[name]
        told: dict[str, Any] = {"link": name, "encryption": declared.encryption, "keyed": False, "live": None}
        try:
            status = await self._conductor.status(name)
            told |= status.to_json()
            why = status.why
            if away := self._key_store_away():
                told["waiting"] = [*told.get("waiting", ()), f"the key store, which is away: {away}"]
        except RotationRefused:
            why = never_keyed(declared.encryption)
        shown, judged = self._gate.shown(name), self._gate.judged(name)
        posture, finding = shown if shown is not None else (None, None)
        if posture is not None:
            told["posture"] = {
                "state": posture.state,
                "posture": posture.posture,
                "reason": posture.reason,
                "since_ns": str(posture.since_ns),
                "fresh_until_ns": str(posture.fresh_until_ns),
                "generation": posture.generation,
                "message": finding.message if finding is not None else "",
            }
        told["ends"] = {side: self._end(name, side) for side in ("a", "b")} if judged is not None else {}
        if judged is not None:
            standing = judged.standing
            told["gate"] = {
                "order": "closed" if standing.closed else "open",
                "reason": standing.reason,
                "since_ns": str(standing.since_ns),
            }
            told["exposure_ms"] = self._exposure(name)
        if name not in self._bare():  # of a link that nothing keys its declaration is all there is to say
            shut = {end["agent"] for end in told["ends"].values() if end.get("path") == "closed"}
            why = first(why, posture, finding, self._gate.standing(name), shut)
        told["why"] = _why(why)
        return told

    def _end(self, name: str, side: str) -> Json:
        track = self._gate.track(name, side)
        if track is None:
            return {}
        sample = track.last
        return {
            "agent": sample.agent,
            "path": sample.path,
            "protect": sample.protect,
            "encrypt": sample.encrypt,
            "tx_key_id": sample.tx_key_id,
            "faults": list(sample.faults),
            "received_ns": str(track.received_ns),
        }

    def _exposure(self, name: str) -> Json:
        """Worst case under partition: agent lost, control plane lost (milliseconds after detection)."""
        resources = self._admission.resources()
        profile = resources.profiles[resources.links[name].profile]
        return {
            "agent_lost": profile.arm_ns // 1_000_000,
            "control_lost": (profile.ttl_ns + profile.max_hold_ns) // 1_000_000,
        }


def _record(record: StoredRecord, *, sensitive: bool) -> Json:
    parts = record.parts
    shown: dict[str, Any] = {
        "seq": record.seq,
        "leaf_hash": parts.leaf_hash().hex(),
        "header": parts.header_fields(),
        "public": parts.public_fields(),
    }
    if sensitive:
        shown["sensitive"] = parts.sensitive_fields()
    return shown


def _why(wait: Wait) -> Json:
    return {"check": wait.check, "detail": wait.detail, "next": wait.next}


def _plain(value: Any) -> Any:
    """Mappings and tuples as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
