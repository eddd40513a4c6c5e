"""Import: nothing vanishes, scopes are right, segments are committed and immutable, twice is refused."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest
from package_world import LOGS, tenants

from evidence.canonical import canonical
from evidence.errors import SourceRefused
from evidence.limits import LIMITS
from evidence.merkle import leaf_hash, root
from evidence.records import Draft, encode
from evidence.sources.base import LineReader
from evidence.sources.importer import Identity, import_log, s3_format
from evidence.sources.segments import read
from evidence.sources.tenancy import TenantMap, scopes_of_access


@pytest.fixture
def done(tmp_path: Path):
    drafts: list[Draft] = []
    got = import_log(
        LOGS / "s3-access.log", s3_format(tenants()), Identity("s3://b/k"),
        folder=tmp_path, commit=drafts.extend, now_ns=1,
    )  # fmt: skip
    return tmp_path, got, drafts


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


def test_an_object_imported_before_is_refused(done) -> None:
    folder, _, _ = done
    with pytest.raises(SourceRefused, match="before"):
        import_log(
            LOGS / "s3-access.log",
            s3_format(tenants()),
            Identity("s3://b/k"),
            folder=folder,
            commit=list,
            now_ns=2,
        )


def test_a_changed_segment_is_found(done) -> None:
    folder, got, _ = done
    s = got.segments[0]
    with pytest.raises(SourceRefused, match="changed"):
        list(read(folder / "segments", s.segment_id, s.schema, "00" * 32, s.rows))


def test_a_failing_commit_leaves_the_object_open_for_another_try(tmp_path: Path) -> None:
    def fail(_drafts: object) -> None:
        raise SourceRefused("no")

    for _ in range(2):
        with pytest.raises(SourceRefused, match="no"):
            import_log(
                LOGS / "s3-access.log",
                s3_format(tenants()),
                Identity("x"),
                folder=tmp_path,
                commit=fail,
                now_ns=1,
            )


def test_an_over_long_line_is_one_line_and_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (LIMITS.source_line * 3) + b"\nshort")
    with path.open("rb") as stream:
        reader = LineReader(stream)
        lines = list(reader)
    assert (2, b"short", path.stat().st_size) == (len(lines), lines[1].raw, reader.size)
    assert lines[1].offset == path.stat().st_size - 5


def test_principals_match_by_name_then_prefix_then_account() -> None:
    table = TenantMap(
        principals={"111122223333": "a", "arn:aws:sts::111122223333:assumed-role/b/": "b", "canon": "c"}
    )
    assert "b" == table.actor("arn:aws:sts::111122223333:assumed-role/b/s")
    assert "a" == table.actor("arn:aws:iam::111122223333:user/x")
    assert "c" == table.actor("canon")
    assert None is table.actor("arn:aws:iam::999999999999:user/x")
    assert ["estate"] == scopes_of_access({"bucket": "unknown"}, table)
