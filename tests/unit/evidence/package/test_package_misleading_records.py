"""Records that are true to the ledger and made to mislead: refused, or a finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from package_world import DAY, END, HOUR, T0, World, decision, make, small, trust_of, verdict

from evidence import attribution_run
from evidence.canonical import canonical
from evidence.errors import ExportRefused, PackageInvalid, RecordRefused
from evidence.package import build
from evidence.package.contents import _record_row
from evidence.package.decoding import Malformed
from evidence.package.model import PackedRecord, Range
from evidence.package.verify import VERIFIED, verify
from evidence.package.workbench import check_row
from evidence.records import Draft
from evidence.sources import segments

WINDOW = (T0, END + 1)  # of `small`: its second tick is the end


def told(world: World) -> tuple[list[str], dict]:
    done = world.export(window=WINDOW)
    verdict = verify(done.path, trust_of(done))
    assert VERIFIED == verdict.text
    return verdict.figures["findings"], verdict.figures


def with_public(draft: Draft, **change: object) -> Draft:
    public = {k: v for k, v in {**draft.public, **change}.items() if v is not None}
    return replace(draft, public=public)


def test_a_verdict_that_names_nothing_is_a_finding(tmp_path: Path) -> None:
    drafts = [
        with_public(verdict("acme", 9, "no", "cw-hidden"), encrypted=None),
        with_public(verdict("acme", 9, "no"), link=None),
        with_public(decision("acme", 20, allowed=False), allowed="no"),
        with_public(decision("acme", 21, allowed=False), allowed=None),
    ]
    made = small(tmp_path, drafts)
    try:
        findings, value = told(made)
    finally:
        made.db.stop()
    assert "Link cw-hidden could not be told to be encrypted in 1 interval." in findings
    assert "Link (not named) was not encrypted in 1 interval." in findings
    assert "2 decisions neither admitted nor refused: counted in neither." in findings
    assert ("cw-hidden", 1) in [(x[0], x[4]) for x in value["links"]]


def test_a_verdict_is_not_moved_out_of_its_window_by_its_event_time(tmp_path: Path) -> None:
    moved = replace(verdict("acme", 9, "no", "cw-moved"), event_time_ns=T0 - 9 * DAY)
    made = small(tmp_path, [moved, replace(decision("acme", 30, allowed=False), event_time_ns=1)])
    try:
        findings, _ = told(made)
    finally:
        made.db.stop()
    assert "Link cw-moved was not encrypted in 1 interval." in findings
    assert (
        "2 records of the range outside the window by event time (1 decision, 1 link_verdict): listed, not counted."
        in findings
    )


@pytest.mark.parametrize(
    "draft",
    [
        with_public(verdict("acme", 9, "no"), begin="9999999999999999999"),
        with_public(verdict("acme", 9, "no"), begin="soon"),
        with_public(verdict("acme", 9, "no"), samples="1e30"),
    ],
)
def test_values_that_no_table_holds_refuse_the_export_with_a_reason(tmp_path: Path, draft: Draft) -> None:
    made = small(tmp_path, [])
    try:
        made.commit([draft])
        made.tick(END + 2 * HOUR)
        with pytest.raises(ExportRefused, match="cannot be tabulated"):
            made.export(window=(T0, END + HOUR))
    finally:
        made.db.stop()


def test_a_time_past_64_bits_never_reaches_the_ledger(world: World) -> None:
    """Once in the outbox it would stop the sequencer for good."""
    with pytest.raises(RecordRefused):
        world.commit([replace(verdict("acme", 9, "no"), event_time_ns=1 << 63)])


def source(**change: object) -> list[Draft]:
    public = {
        "object_id": "ab" * 16, "source_name": "s3_access", "source_class": "best-effort", "time_means": "received",
        "resolution_ns": "1000000000", "uri": "s3://x/y", "sha256_stored": "ab" * 32, "octets": "1", "rows": 0,
        "quarantined": 0, "end_of_source": True, "parser": "s3_access", "parser_digest": "ab" * 32,
    }  # fmt: skip
    return [Draft("source_object", "acme", "import", T0 + HOUR, {**public, **change})]


RUN = {
    "run_id": "cd" * 16, "method": "1", "segments": [], "jobs_segment": ["ef" * 16], "grace_ns": "5000000000",
    "bucket_ns": "3600000000000", "counts": {"direct": 1}, "result_root": "00" * 32, "rows": 0,
}  # fmt: skip


def test_a_plain_source_is_taken(tmp_path: Path) -> None:
    made = small(tmp_path, source())
    try:
        assert [["s3_access", "best-effort"]] == [s[:2] for s in told(made)[1]["sources"]]
    finally:
        made.db.stop()


@pytest.mark.parametrize(
    "drafts",
    [
        source(source_class="chained"),
        source(source_class="blocking"),
        source(time_means="completed"),
        source(resolution_ns="1"),
        source(source_name="oracle"),
        source(rows=7),  # rows that no segment commits
        source(rows="0"),
        source(rows=-1),
        *(source(quarantined=n) for n in (None, -5, True, "1", "9007199254740993", [1])),
        source(lines=1, quarantined=2),
        source(lines=3, quarantined=2, duplicates=2),
        source(lines=-1),
        source(duplicates="1"),
        source() + source(),
        [Draft("attribution_run", "acme", "attribution", T0, RUN | {"grace_ns": "315360000000000000"})],
        [Draft("attribution_run", "acme", "attribution", T0, RUN | {"sql_digest": "00" * 32})],
    ],
)
def test_a_source_or_run_that_claims_more_than_its_kind_can_is_refused(
    tmp_path: Path, drafts: list[Draft], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(tmp_path, drafts)
    try:
        with pytest.raises(ExportRefused, match=r"claims|does not know|committed|counted|method|grace"):
            made.export(window=WINDOW)
    finally:
        made.db.stop()


def test_an_attribution_that_was_committed_wrongly_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator commits a false match: root and proofs hold, but the inputs give another result."""

    original = segments.SegmentWriter.add

    def lie(self, row, begin_ns=None, end_ns=None):
        if row.get("method") == "unmatched":
            row = row | {"method": "interval-unique", "job_key": "train-us/1205/1740992400/0"}
        return original(self, row, begin_ns, end_ns)

    monkeypatch.setattr(segments.SegmentWriter, "add", lie)
    made = make(tmp_path)
    try:
        with pytest.raises(ExportRefused, match="does not repeat"):
            made.export()
        monkeypatch.setattr(build, "repeatable", lambda run, contents: False)  # an operator's own build
        done = made.export()
        with pytest.raises(PackageInvalid, match="not what the inputs give") as caught:
            verify(done.path, trust_of(done))
        assert "access" in caught.value.record
    finally:
        made.db.stop()


def test_an_attribution_whose_inputs_are_withheld_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator names a job list that the package lacks, so that nothing can be done again."""

    draft = attribution_run._draft

    def elsewhere(*args, **more):
        made = draft(*args, **more)
        return replace(made, public={**made.public, "jobs_segment": ["ef" * 16]})

    monkeypatch.setattr(attribution_run, "_draft", elsewhere)
    made = make(tmp_path)
    try:
        findings, _ = told(made)
    finally:
        made.db.stop()
    assert any("19 accesses laid to jobs by record" in f and "not repeated" in f for f in findings)


def test_a_row_without_what_it_is_counted_by_is_refused(world: World) -> None:

    good = {"event_id": "e", "offset": "0", "time_ns": "5"}
    assert check_row(canonical(good), "s3_access", 0)
    for evil in (
        {"offset": "0", "time_ns": "5"}, good | {"time_ns": "1e18"}, good | {"time_ns": " 5"},
        good | {"time_ns": str(1 << 63)}, good | {"bytes_sent": "-1"}, good | {"bytes_sent": "007"},
    ):  # fmt: skip
        with pytest.raises(Malformed):
            check_row(canonical(evil), "s3_access", 0)


@pytest.mark.parametrize("change", [{"version": True}, {"source": {"a": 1}}, {"boot_id": None}])
def test_header_fields_of_another_type_are_refused(change: dict) -> None:

    fields = {
        "kind": "decision",
        "version": 1,
        "source": "s",
        "boot_id": "b",
        "received_time": "1",
        "source_seq": "0",
    }
    record = PackedRecord(0, "", "{}", "{}", b"", fields | change)
    with pytest.raises(Malformed):
        _record_row(Range("acme", "0" * 32, 0, 1), record, (0, 1))
