"""Durable ledger records per second on SQLite, beside two named peers in the same run.

Ours: a decision-like draft becomes a record of three parts under three random salts; 1,000 of them over eight
scopes are appended in one transaction with trees, frontiers, high water and (spool, sequence) uniqueness; the
commit is durable (WAL, synchronous=FULL, checked). Encoding is inside the measured time.

Peers, on the same bodies and the same durability: pymerkle's SqliteTree appending in bulk (one tree of which
only leaves are kept, no salts, no exactly-once), and a plain INSERT without any tree (what SQLite costs).
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pymerkle

from evidence.append import append_frames
from evidence.canonical import canonical
from evidence.database import Database
from evidence.ledger import Ledger
from evidence.records import SALTS_OCTETS, Draft, encode

BATCH, BATCHES, ROUNDS, SCOPES, GOAL = 1000, 20, 5, 8, 20_000
NAMES = [f"tenant-{number}" for number in range(SCOPES)]


def draft(number: int) -> Draft:
    """Return a decision of about 900 octets."""
    digest = f"{number:064x}"
    public = {
        "decision_id": digest[:32],
        "cluster": "train-us",
        "operation": "CREATE",
        "kind": "Job",
        "dry_run": False,
        "allowed": number % 7 != 0,
        "policy_digest": digest,
        "bundle_digest": digest,
        "input_digest": digest,
        "facts_digest": digest,
        "context_digest": digest,
        "caller": "certificate",
    }
    sensitive = {"namespace": "acme-train", "name": f"job-{number}", "uid": digest[:36]}
    event_time = 1_700_000_000_000_000_000 + number
    return Draft("decision", NAMES[number % SCOPES], "bench", event_time, public, sensitive)


def ours(folder: Path) -> Callable[[int], None]:
    """Return a function that appends one batch durably."""
    db = Database(folder / "ledger.db")
    db.start()
    db.create_all()
    ids = Ledger.open(db, "sluicegate.io/bench").ensure_scopes(*NAMES)
    synchronous, journal = db.write_sync(
        lambda conn: (
            conn.exec_driver_sql("PRAGMA synchronous").scalar(),
            conn.exec_driver_sql("PRAGMA journal_mode").scalar(),
        )
    )
    assert (synchronous, journal) == (2, "wal"), "not durable"

    def run(batch: int) -> None:
        salts, first, now = os.urandom(SALTS_OCTETS * BATCH), batch * BATCH, time.time_ns()
        frames = []
        for at in range(BATCH):
            one = draft(first + at)
            record = encode(
                one,
                scope_id=ids[one.scope],
                source_seq=first + at,
                boot_id="bench",
                received_time_ns=now,
                salts=salts[at * SALTS_OCTETS : (at + 1) * SALTS_OCTETS],
            )
            frames.append((first + at, record.frame))
        db.write_sync(lambda conn: append_frames(conn, "bench", frames))

    return run


def bodies(batch: int) -> list[bytes]:
    """Return the canonical bytes that peers store: as many octets as our parts have."""
    made = [draft(batch * BATCH + at) for at in range(BATCH)]
    return [canonical({**one.public, **one.sensitive, "scope": one.scope}) for one in made]


def merkle_peer(folder: Path) -> Callable[[int], None]:
    """Return a function that appends one batch to pymerkle's SQLite tree."""
    tree = pymerkle.SqliteTree(str(folder / "pymerkle.db"))
    tree.con.execute("PRAGMA journal_mode=WAL")
    tree.con.execute("PRAGMA synchronous=FULL")
    return lambda batch: void(tree.append_entries(bodies(batch), chunksize=BATCH))


def insert_peer(folder: Path) -> Callable[[int], None]:
    """Return a function that inserts one batch into a table without trees."""
    con = sqlite3.connect(folder / "plain.db", isolation_level=None)
    con.execute("PRAGMA page_size=16384")
    con.execute("PRAGMA journal_mode=WAL")
    con.execute("PRAGMA synchronous=FULL")
    con.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, frame BLOB NOT NULL)")

    def run(batch: int) -> None:
        con.execute("BEGIN IMMEDIATE")
        con.executemany("INSERT INTO record VALUES (?, ?)", list(enumerate(bodies(batch), batch * BATCH)))
        con.execute("COMMIT")

    return run


def void(_: object) -> None:
    """Throw a result away."""


def rate(run: Callable[[int], None], round_number: int) -> float:
    """Return records per second of one round."""
    begin = time.perf_counter()
    for batch in range(BATCHES):
        run(round_number * BATCHES + batch)
    return BATCH * BATCHES / (time.perf_counter() - begin)


def main() -> None:
    """Measure in interleaved rounds and print medians."""
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-bench-", dir=Path.cwd()))
    try:
        sides = {
            "sluicegate ledger": ours(folder),
            "pymerkle SqliteTree, bulk append": merkle_peer(folder),
            "plain INSERT, no tree": insert_peer(folder),
        }
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for round_number in range(ROUNDS):
            for name, run in sides.items():
                rates[name].append(rate(run, round_number))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"machine: {os.cpu_count()} x {platform.machine()}, {platform.system()} {platform.release()},")
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    versions = f"SQLite {sqlite3.sqlite_version}, pymerkle {pymerkle.__version__}"
    print(f"         Python {platform.python_version()}, {versions}; load {load}")
    print(f"durable records per second, batches of {BATCH:,}, median of {ROUNDS} rounds (lowest to highest):")
    for name, values in rates.items():
        print(f"  {name:34} {statistics.median(values):>9,.0f}  ({min(values):,.0f} to {max(values):,.0f})")
    value = statistics.median(rates["sluicegate ledger"])
    print(f"goal: at least {GOAL:,} for the ledger: {'met' if value >= GOAL else 'MISSED'}")
    print(f"value={value:.0f}")
    raise SystemExit(0 if value >= GOAL else 1)


if __name__ == "__main__":
    main()
