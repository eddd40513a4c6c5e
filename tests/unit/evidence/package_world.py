"""A small finished world for package tests: ledger on SQLite, imported logs, one exported package."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evidence.attribution_run import attribute, read_leases
from evidence.checkpoint import LocalSigner
from evidence.database import Database
from evidence.ledger import Ledger
from evidence.outbox import Inbox, put
from evidence.package.build import Exported, export
from evidence.package.trust import Trust, read_trust
from evidence.records import Draft
from evidence.sequencer import Sequencer
from evidence.sources.importer import Identity, import_log, s3_format, sacct_format
from evidence.sources.slurm_sacct import Sacct
from evidence.sources.tenancy import TenantMap

LOGS = Path(__file__).parents[3] / "deploy" / "examples" / "logs"
T0 = 1_740_960_000_000_000_000  # 2025-03-03T00:00:00Z
DAY = 86_400_000_000_000
HOUR = 3_600_000_000_000
H32 = "ab" * 32
END = T0 + DAY + HOUR  # received time of the last tick of `make`


def signer(seed: int = 1, name: str = "ledger") -> LocalSigner:
    return LocalSigner(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def decision(scope: str, n: int, *, allowed: bool, rules: tuple[str, ...] = ()) -> Draft:
    public = {
        "decision_id": f"{n:032x}", "cluster": "train-us", "group": "batch", "version": "v1", "kind": "Job",
        "operation": "CREATE", "dry_run": False, "allowed": allowed, "rules": list(rules), "policy_digest": H32,
        "input_digest": H32, "facts_digest": H32, "context_digest": H32,
    }  # fmt: skip
    reasons = [
        {"rule": r, "text": f"refused by {r} <b>&", "fix": "declare it", "path": "spec"} for r in rules
    ]
    sensitive = {"namespace": f"{scope}-train", "name": f"job-{n}", "reasons": reasons}
    return Draft("decision", scope, "webhook", T0 + 9 * HOUR + n * 1_000_000_000, public, sensitive)


def verdict(scope: str, n: int, encrypted: str, link: str = "cw-gcp-1") -> Draft:
    begin = T0 + 9 * HOUR + n * 60_000_000_000
    public = {
        "link": link, "begin": str(begin), "end": str(begin + 60_000_000_000), "encrypted": encrypted,
        "key_id": f"{n:016x}", "samples": 6, "counters_digest": H32,
    }  # fmt: skip
    return Draft(
        "link_verdict",
        scope,
        "posture",
        begin,
        public,
        {"counters": {"OutPktsEncrypted": "12345678901234567890"}},
    )


def shared() -> list[Draft]:
    """What the estate's scope holds besides: rotations, gate, heartbeats."""

    def at(minute: int) -> int:
        return T0 + 9 * HOUR + minute * 60_000_000_000

    def draft(kind: str, minute: int, **public: object) -> Draft:
        return Draft(kind, "estate", "conductor", at(minute), public)

    ids = {"a": f"{1:016x}", "b": f"{2:016x}"}
    end = {"old_key_ids": ids, "new_key_ids": ids, "elapsed_ms": 812, "epoch": 1, "key_version": 3}
    order = {"link": "cw-gcp-1", "endpoint": "a", "epoch": 1, "order_digest": H32}
    return [
        draft(
            "rotation_step",
            1,
            link="cw-gcp-1",
            rotation="r1",
            step="prepare",
            outcome="install",
            elapsed_ms=9,
        ),
        draft("rotation_end", 2, link="cw-gcp-1", rotation="r1", end="complete", frames_lost=0, **end),
        draft(
            "rotation_end", 3, link="cw-aws-1", rotation="r2", end="rolled back", why="counters_differ", **end
        ),
        draft("permit", 4, seq=1, ttl_ms=1500, **order),
        draft("violation", 5, link="cw-gcp-1", reason="clear_frame", since=str(at(5)), generation=4),
        draft("close", 5, seq=2, reason="violation", since=str(at(5)), **order),
        draft("reopen", 7, seq=3, reason="repaired", **order),
        draft("heartbeat", 8, component="up", status="ready"),
        draft("lease", 8, name="conductor", token=1, action="taken"),
    ]


@dataclass
class World:
    folder: Path
    db: Database
    ledger: Ledger
    signer: LocalSigner
    now: int = T0 - DAY

    def commit(self, drafts) -> None:
        self.db.write_sync(lambda conn: [put(conn, d, now_ns=self.now) for d in drafts])

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.db, self.now)

    def tick(self, at: int) -> None:
        self.now = at
        Sequencer(self.db, self.ledger, clock=lambda: at).tick_sync(at, self.signer)

    def export(
        self, scope: str = "acme", window: tuple[int, int] = (T0, T0 + DAY), name: str = "acme.zip"
    ) -> Exported:
        return export(
            self.db,
            self.signer,
            scope,
            window,
            self.folder / name,
            sources=self.folder / "sources",
            now_ns=T0 + 2 * DAY,
        )


def tenants() -> TenantMap:
    return TenantMap.from_json((LOGS / "tenants.json").read_bytes())


def make(folder: Path, *, logs: bool = True, faults: bool = False) -> World:
    db = Database(folder / "ledger.db")
    db.start()
    db.create_all()
    ledger = Ledger.open(db, "sluicegate.io/ledger/test")
    key = signer()
    world = World(folder, db, ledger, key)
    world.commit([decision("acme", 900 + i, allowed=True) for i in range(3)])
    world.tick(T0 - HOUR)
    world.commit(
        [
            decision("acme", i, allowed=i % 3 != 0, rules=() if i % 3 else ("residency.region",))
            for i in range(1, 9)
        ]
    )
    world.commit([decision("globex", 1, allowed=True)])
    world.commit([verdict("acme", i, v) for i, v in enumerate(("yes", "yes", "no", "unknown", "yes"))])
    world.commit([*shared(), verdict("estate", 1, "yes", "cw-aws-1")])
    if faults:
        world.commit(
            [Draft("faults_enabled", "acme", "gate", T0 + HOUR, {"component": "dataplane", "since": str(T0)})]
        )
    if logs:
        import_logs(world)
    world.tick(END)
    return world


def small(folder: Path, drafts: list[Draft]) -> World:
    """A world of its own with these records more, without logs."""
    folder.mkdir(exist_ok=True)
    made = make(folder, logs=False)
    made.now = T0 + DAY
    made.commit(drafts)
    made.tick(END + HOUR)
    return made


def import_logs(world: World) -> None:
    sources = world.folder / "sources"
    s3 = import_log(
        LOGS / "s3-access.log", s3_format(tenants()), Identity("s3://acme-logs/2025-03-03"),
        folder=sources, inbox=world.inbox, now_ns=T0 + 20 * HOUR,
    )  # fmt: skip
    jobs = import_log(
        LOGS / "sacct.txt", sacct_format(tenants(), Sacct()), Identity("file:sacct.txt"),
        folder=sources, inbox=world.inbox, now_ns=T0 + 20 * HOUR,
    )  # fmt: skip
    leases = read_leases((LOGS / "leases.csv").read_bytes())
    attribute(sources, [*s3.segments, *jobs.segments], leases, inbox=world.inbox, now_ns=T0 + 20 * HOUR)


def trust_of(exported: Exported) -> Trust:
    return read_trust(exported.trust_path.read_bytes())


def write_vector(folder: Path) -> None:
    """Make the known package of format 1 anew (only before the format is released)."""
    with tempfile.TemporaryDirectory() as temporary:
        world = make(Path(temporary))
        done = world.export()
        shutil.copyfile(done.path, folder / "package_v1.zip")
        shutil.copyfile(done.trust_path, folder / "package_v1.trust.json")
        world.db.stop()


if __name__ == "__main__":
    write_vector(Path(__file__).parents[2] / "vectors")
