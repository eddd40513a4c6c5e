"""Import: nothing vanishes, scopes are right, segments are committed and immutable, twice is refused."""

from __future__ import annotations

import base64
import contextlib
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from inboxes import ListInbox
from package_world import DAY, LOGS, T0, tenants

from evidence.canonical import canonical
from evidence.database import Database
from evidence.errors import PutBefore, RecordRefused, SourceRefused, SourceUnreadable
from evidence.ledger import Ledger
from evidence.limits import LIMITS
from evidence.merkle import leaf_hash, root
from evidence.outbox import Inbox
from evidence.records import Draft, encode
from evidence.sources import base
from evidence.sources.base import LineReader
from evidence.sources.importer import Format, Identity, import_log, s3_format, sacct_format
from evidence.sources.segments import read, segments_of
from evidence.sources.slurm_sacct import Sacct
from evidence.sources.tenancy import TenantMap, scopes_of_access

NOW = T0 + DAY


@pytest.fixture
def done(tmp_path: Path):
    inbox = ListInbox()
    got = import_log(
        LOGS / "s3-access.log", s3_format(tenants()), Identity("s3://b/k"),
        folder=tmp_path, inbox=inbox, now_ns=NOW,
    )  # fmt: skip
    return tmp_path, got, inbox.drafts


def test_every_line_is_accounted_for(done) -> None:
    _, got, _ = done
    c = got.counts
    assert c.adds_up()
    assert (24, 22, 1, 1) == (c.lines, c.rows, c.duplicates, c.quarantined)


def test_an_access_goes_to_owner_and_actor_under_one_event_id(done) -> None:
    folder, got, _ = done
    rows = {
        s.scope: [json.loads(x) for x in read(folder / "segments", s.segment_id, s.schema, s.root, s.rows)]
        for s in got.segments
    }
    assert {"acme", "globex", "estate"} == set(rows)
    crossing = [r for r in rows["acme"] if r.get("error_code") == "AccessDenied"]
    assert crossing[0]["event_id"] in {r["event_id"] for r in rows["globex"]}
    assert ["shared-mirror"] == [r["bucket"] for r in rows["estate"]]


def test_the_committed_root_is_that_of_the_rows(done) -> None:
    folder, got, drafts = done
    for s in got.segments:
        lines = list(read(folder / "segments", s.segment_id, s.schema, s.root, s.rows))
        assert s.root == root([leaf_hash(x) for x in lines]).hex()
        assert lines == [canonical(json.loads(x)) for x in lines]
    assert {s.root for s in got.segments} == {d.public["root"] for d in drafts if d.kind == "log_segment"}


def test_drafts_are_records_of_declared_kinds(done) -> None:
    for draft in done[2]:
        encode(draft, scope_id="0" * 32, source_seq=0, boot_id="b", received_time_ns=1, salts=bytes(48))


def test_a_tenant_is_told_its_own_rows_and_the_quarantined_lines(done) -> None:
    objects = {d.scope: d.public for d in done[2] if d.kind == "source_object"}
    assert 22 == objects["estate"]["rows"]
    assert (19, 1) == (objects["acme"]["rows"], objects["acme"]["quarantined"])
    assert "lines" not in objects["acme"]


def test_quarantined_octets_are_kept_outside_private_and_whole(done) -> None:
    folder, got, _ = done
    path = folder / "quarantine" / f"{got.object_id}.ndjson"
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    (entry,) = map(json.loads, path.read_text().splitlines())
    raw = base64.b64decode(entry["raw"])
    assert raw in (LOGS / "s3-access.log").read_bytes()
    assert entry["offset"] == (LOGS / "s3-access.log").read_bytes().index(raw)


def once(folder: Path, inbox: Inbox):
    return import_log(
        LOGS / "s3-access.log",
        s3_format(tenants()),
        Identity("s3://b/k"),
        folder=folder,
        inbox=inbox,
        now_ns=NOW,
    )


def test_an_object_imported_before_is_not_imported_again(tmp_path: Path) -> None:
    inbox = ListInbox()
    first, again = once(tmp_path, inbox), once(tmp_path, inbox)
    assert (True, False) == (first.fresh, again.fresh)
    assert first.segments == again.segments
    assert 1 == len(inbox.works)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit_repeats_and_loses_nothing(tmp_path: Path, when: str) -> None:
    class Killed(ListInbox):
        def commit(self, drafts, work) -> None:
            if when == "after":
                super().commit(drafts, work)
            raise KeyboardInterrupt

    inbox = Killed()
    with pytest.raises(KeyboardInterrupt):
        once(tmp_path, inbox)
    other = ListInbox()
    other.works, other.drafts = inbox.works, inbox.drafts
    done = once(tmp_path, other)
    assert (when == "before") is done.fresh
    assert 1 == len(other.works)
    assert len(done.segments) == len([d for d in other.drafts if d.kind == "log_segment"])
    for s in done.segments:
        assert s.rows == len(list(read(tmp_path / "segments", s.segment_id, s.schema, s.root, s.rows)))


def test_leftovers_of_a_killed_import_stand_in_no_ones_way(tmp_path: Path) -> None:
    once(tmp_path, ListInbox())
    for path in list((tmp_path / "segments").glob("*")):  # killed between chmod and rename
        path.rename(path.with_name(f".{path.name}"))
    stale = TenantMap(buckets={"us-corpus": "elsewhere"})
    import_log(  # finished under other tables, never committed
        LOGS / "s3-access.log",
        s3_format(stale),
        Identity("x"),
        folder=tmp_path,
        inbox=ListInbox(),
        now_ns=NOW,
    )
    done = once(tmp_path, ListInbox())
    assert {"acme", "globex", "estate"} == {s.scope for s in done.segments}
    stored = segments_of(tmp_path / "segments", done.object_id)
    assert list(done.segments) == stored


def test_two_imports_at_once_are_refused(tmp_path: Path) -> None:
    class Nested(ListInbox):
        def commit(self, drafts, work) -> None:
            once(tmp_path, ListInbox())

    with pytest.raises(SourceRefused, match="at work"):
        once(tmp_path, Nested())


def test_a_line_from_the_future_is_quarantined(tmp_path: Path) -> None:
    lines = (LOGS / "s3-access.log").read_bytes().splitlines(keepends=True)
    path = tmp_path / "log"
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"/2025:", b"/2035:")]))
    got = import_log(
        path, s3_format(tenants()), Identity("x"), folder=tmp_path, inbox=ListInbox(), now_ns=NOW
    )
    assert (2, {"time lies in the future": 1}) == (got.counts.rows, got.counts.reasons)


def sacct() -> Format:
    return sacct_format(tenants(), Sacct())


def s3() -> Format:
    return s3_format(tenants())


@pytest.mark.parametrize("make", [s3, sacct])
@pytest.mark.parametrize("junk", ["", "\n\n", "\x00\xff\x1f\n" * 9, "other", "words of a note\n"])
def test_an_object_without_a_readable_row_is_refused_and_leaves_nothing(tmp_path: Path, make, junk) -> None:
    """It would be filed for good, and the right file of the same octets never again."""
    path, folder, inbox = tmp_path / "log", tmp_path / "sources", ListInbox()
    other = LOGS / ("sacct.txt" if make is s3 else "s3-access.log")
    path.write_bytes(other.read_bytes() if junk == "other" else junk.encode("latin-1"))
    with pytest.raises(SourceUnreadable) as why:
        import_log(path, make(), Identity("x"), folder=folder, inbox=inbox, now_ns=NOW)
    assert why.value.fix
    assert ([], []) == (inbox.drafts, inbox.works)
    assert ["lock"] == [p.name for p in folder.rglob("*") if p.is_file()]


def test_a_listing_of_a_header_alone_says_that_there_were_no_jobs(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes((LOGS / "sacct.txt").read_bytes().splitlines(keepends=True)[0])
    got = import_log(path, sacct(), Identity("x"), folder=tmp_path, inbox=ListInbox(), now_ns=NOW)
    assert (1, 1, 0) == (got.counts.lines, got.counts.header, got.counts.rows)


def test_the_key_of_the_work_and_its_records_are_one_transaction(tmp_path: Path) -> None:
    db = Database(tmp_path / "l.db")
    db.start()
    db.create_all()
    Ledger.open(db, "o")
    inbox = Inbox(db)
    draft = Draft("heartbeat", "estate", "s", 1, {"component": "up", "status": "ready"})
    with pytest.raises(RecordRefused):
        inbox.commit([draft, Draft("nonsense", "estate", "s", 1, {})], "w")
    assert not inbox.has("w")
    inbox.commit([draft], "w")
    with pytest.raises(PutBefore):
        inbox.commit([draft], "w")
    assert 1 == db.read_sync(lambda c: c.exec_driver_sql("SELECT count(*) FROM outbox_entry").scalar())
    db.stop()


def test_stored_segments_are_read_only(done) -> None:
    folder, got, _ = done
    stored = list((folder / "segments").iterdir())
    assert 2 * len(got.segments) == len(stored)
    assert {0o400} == {stat.S_IMODE(path.stat().st_mode) for path in stored}


def test_an_object_of_too_many_lines_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    log, folder = LOGS / "s3-access.log", tmp_path / "sources"
    for bound, outcome in ((24, contextlib.nullcontext()), (23, pytest.raises(SourceRefused, match="lines"))):
        monkeypatch.setattr(base, "LIMITS", replace(LIMITS, source_lines=bound))
        with outcome:
            import_log(log, s3(), Identity("x"), folder=folder / str(bound), inbox=ListInbox(), now_ns=NOW)
    assert ["lock"] == [p.name for p in (folder / "23").rglob("*") if p.is_file()]


def test_a_changed_segment_is_found(done) -> None:
    folder, got, _ = done
    s = got.segments[0]
    with pytest.raises(SourceRefused, match="changed"):
        list(read(folder / "segments", s.segment_id, s.schema, "00" * 32, s.rows))


def test_an_over_long_line_is_one_line_and_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (LIMITS.source_line * 3) + b"\nshort")
    with path.open("rb") as stream:
        reader = LineReader(stream)
        lines = list(reader)
    assert (2, b"short", path.stat().st_size) == (len(lines), lines[1].raw, reader.size)
    assert lines[1].offset == path.stat().st_size - 5


def filled(size: int) -> bytes:
    """A line that reads well, of so many octets."""
    line = (LOGS / "s3-access.log").read_bytes().splitlines()[0]
    return line.replace(b"s5cmd", b"x" * (size - len(line)) + b"s5cmd")


@pytest.mark.parametrize(
    ("line", "counted"),
    [
        (filled(LIMITS.source_line), (2, 0, 0)),
        (filled(LIMITS.source_line - 1) + b"\r", (2, 0, 0)),
        (filled(LIMITS.source_line) + b"\r and what was left out", (1, 0, 1)),
        (filled(LIMITS.source_line + 1), (1, 0, 1)),
        (b" " * LIMITS.source_line, (1, 1, 0)),
        (b" " * (LIMITS.source_line + 1) + filled(1), (1, 0, 1)),
    ],
)
def test_what_begins_an_over_long_line_is_neither_a_row_nor_blank(
    tmp_path: Path, line: bytes, counted: tuple[int, int, int]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(line + b"\n" + (LOGS / "s3-access.log").read_bytes().splitlines()[1])
    c = import_log(path, s3(), Identity("x"), folder=tmp_path, inbox=ListInbox(), now_ns=NOW).counts
    assert counted == (c.rows, c.blank, c.quarantined)
    assert (counted[2], True) == (c.reasons.get("line too long", 0), c.adds_up())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("importer.file_sha256", lambda _: "00" * 32),  # other octets when it was hashed
        ("base.Counts.adds_up", lambda _: False),
    ],
)
def test_an_object_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, change
) -> None:
    folder, inbox = tmp_path / "sources", ListInbox()
    monkeypatch.setattr(f"evidence.sources.{name}", change)
    with pytest.raises(SourceRefused, match="changed while it was read"):
        once(folder, inbox)
    assert ([], ["lock"]) == (inbox.drafts, [p.name for p in folder.rglob("*") if p.is_file()])


def test_what_an_import_stores_has_durable_names(tmp_path: Path, synced: list[Path]) -> None:
    once(tmp_path / "a" / "sources", ListInbox())
    sources = tmp_path / "a" / "sources"
    assert {tmp_path, tmp_path / "a", sources, sources / "segments", sources / "quarantine"} <= set(synced)
    (kept,) = (sources / "quarantine").iterdir()
    assert synced.index(kept) < synced.index(sources / "quarantine")
    assert {0o700} == {stat.S_IMODE(p.stat().st_mode) for p in (sources, *sources.iterdir()) if p.is_dir()}


def test_principals_match_by_name_then_prefix_then_account() -> None:
    table = TenantMap(
        principals={"111122223333": "a", "arn:aws:sts::111122223333:assumed-role/b/": "b", "canon": "c"}
    )
    assert "b" == table.actor("arn:aws:sts::111122223333:assumed-role/b/s")
    assert "a" == table.actor("arn:aws:iam::111122223333:user/x")
    assert "c" == table.actor("canon")


@pytest.mark.parametrize("declared", [("r/", "r/b/"), ("r/b/", "r/")])
def test_of_two_prefixes_the_longer_names_the_tenant(declared: tuple[str, ...]) -> None:
    table = TenantMap(principals={prefix: prefix for prefix in declared})
    assert ["r/b/", "r/", "r/"] == [table.actor(name) for name in ("r/b/s", "r/bb", "r/s/b/")]
    assert None is table.actor("arn:aws:iam::999999999999:user/x")
    assert ["estate"] == scopes_of_access({"bucket": "unknown"}, table)
