"""The operator who cheats and holds the signing key: what he signs must still not verify."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from package_world import DAY, HOUR, T0, World, decision, make, signer, trust_of, verdict
from test_package_verify import refused, second_path

from evidence.canonical import canonical, decode_canonical
from evidence.checkpoint import parse_checkpoint, parse_note, sign_checkpoint, verifier_of
from evidence.errors import ExportRefused, KeyHistoryInvalid, PackageInvalid, RecordRefused, SignerChanged
from evidence.ledger import Ledger
from evidence.package import build, container, figures, html, pdf
from evidence.package import collect as collecting
from evidence.package.attacks import pack, sign_again, unpack
from evidence.package.build import Exported
from evidence.package.collect import collect
from evidence.package.model import CHECKPOINT, ENVELOPE, SIGNER, Predicate, proofs_name, records_name
from evidence.package.trust import SignerFile, Trust
from evidence.package.verify import VERIFIED, verify, verify_octets
from evidence.records import Draft
from evidence.signing import key_change_draft, key_history
from evidence.store import Database
from evidence.view import LedgerView

END = T0 + DAY + HOUR
WINDOW = (T0, END + 1)  # of `small`: its second tick is the end


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = make(tmp_path_factory.mktemp("cheats"))
    yield made
    made.db.stop()


@pytest.fixture(scope="module")
def exported(world: World) -> Exported:
    return world.export()


@pytest.fixture(scope="module")
def trust(exported: Exported) -> Trust:
    return trust_of(exported)


@pytest.fixture
def members(exported: Exported) -> dict[str, bytes]:
    return unpack(exported.path.read_bytes())


def small(folder: Path, drafts: list[Draft]) -> World:
    """A world of its own with these records more, without logs."""
    folder.mkdir(exist_ok=True)
    made = make(folder, logs=False)
    made.now = T0 + DAY
    made.commit(drafts)
    made.tick(END + HOUR)
    return made


def told(world: World) -> tuple[list[str], dict]:
    done = world.export(window=WINDOW)
    verdict = verify(done.path, trust_of(done))
    assert VERIFIED == verdict.text
    return verdict.figures["findings"], verdict.figures


# -- ranges and windows -------------------------------------------------------------------------------------


def lying(world: World, monkeypatch: pytest.MonkeyPatch, begin: int, end: int) -> dict[str, bytes]:
    """The package that the operator's own build makes between two ticks of his choice."""

    def ticks(view, window, lateness_ns):
        return view.tick(begin), view.tick(end), []

    monkeypatch.setattr(collecting, "_ticks", ticks)
    monkeypatch.setattr(collecting, "_early", lambda view, scope_id, tick, from_ns: tick)
    got = world.db.read_sync(
        lambda conn: collect(
            LedgerView(conn), "acme", (T0, T0 + DAY), world.folder / "sources",
            now_ns=T0 + 2 * DAY, lateness_ns=0, custody="embedded (not separated)",
        )
    )  # fmt: skip
    return build.build(got, world.signer)


def test_a_range_that_begins_late_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path, logs=False)
    try:
        made.now = T0 + 10 * HOUR  # received in the window
        made.commit([decision("acme", 50, allowed=False, rules=("encryption.link",))])
        made.tick(T0 + 11 * HOUR)
        made.now = T0 + 12 * HOUR
        made.commit([decision("acme", 51, allowed=True)])
        made.tick(END)
        trust = trust_of(made.export())
        late = lying(made, monkeypatch, 2, 3)
        refused(late, trust, "8", "begins late")
        name = next(n for n in late if n.startswith("proofs/"))
        proofs = json.loads(late[name])
        for change in (
            {"before": None},
            {"before": proofs["before"] | {"header": proofs["before"]["header"].replace("17409", "17408")}},
            {"before": proofs["before"] | {"path": proofs["before"]["path"][:-1]}},
            {"before": proofs["before"] | {"header": "[]"}},
        ):
            refused(sign_again(late | {name: canonical(proofs | change)}, made.signer), trust, "8", name)
    finally:
        made.db.stop()


def test_a_range_that_ends_at_an_older_head_than_its_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(tmp_path, [decision("acme", 60, allowed=False)])
    try:
        trust = trust_of(made.export())
        head_proof = collecting._head_proof

        def newest(view, scope_id, tick, end):
            return head_proof(view, scope_id, tick, view.tick(view.tick_count() - 1))

        monkeypatch.setattr(collecting, "_head_proof", newest)
        monkeypatch.setattr(
            LedgerView, "checkpoint", lambda self, tick: self.tick(self.tick_count() - 1).note
        )
        evil = lying(made, monkeypatch, 0, 1)
        error = refused(evil, trust, "8", "older head")
        (tmp_path / "second").mkdir()
        assert error
        done = second_path(tmp_path / "second", evil, pack(evil), trust)
        assert (1, True) == (done.returncode, "checkpoint's head" in done.stderr), done.stderr
    finally:
        made.db.stop()


def test_clocks_that_differ_make_the_range_begin_earlier(tmp_path: Path) -> None:
    db = Database(tmp_path / "l.db")
    db.start()
    db.create_all()
    made = World(tmp_path, db, Ledger.open(db, "sluicegate.io/ledger/test"), signer())
    try:
        # The component's clock is ahead: received "in" the window, in a tick before it.
        for n, (received, tick) in enumerate([(T0 - DAY, T0 - HOUR), (T0 + 5, T0 - 1), (END, END)]):
            made.now = received
            made.commit([decision("acme", n, allowed=True)])
            made.tick(tick)
        done = made.export()
        assert VERIFIED == verify(done.path, trust_of(done)).text
        assert (1, 3) == (done.predicate.ranges[0].begin, done.predicate.ranges[0].end)
    finally:
        db.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"custody": "HSM, separated, certified by X"},
        {"anchored": "anchored by TSA"},
        {"provisional": ("all is well",)},
        {"provisional": ("no checkpoint yet after the end of the window and its lateness bound",) * 2},
        {"tool": {"duckdb": "1", "reportlab": "1", "sluicegate": "1", "audited": "1"}},
        {"tool": {"duckdb": "1", "reportlab": "audited by X", "sluicegate": "1"}},
        {"window": (5, 5)},
    ],
)
def test_a_statement_with_words_of_the_operators_own_is_refused(
    members: dict[str, bytes], trust: Trust, world: World, change: dict
) -> None:
    evil = dict(members)
    body = decode_canonical(base64.b64decode(json.loads(members[ENVELOPE])["payload"]))
    predicate = replace(Predicate.decode(body["predicate"]), **change)
    value = body | {"predicate": predicate.encode()}
    from evidence.package import dsse

    evil[ENVELOPE] = dsse.seal(canonical(value), world.signer)
    refused(evil, trust, "4")


def test_a_closed_window_that_was_not_over_is_refused(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    for change in ({"made_ns": T0 + DAY - 1}, {"lateness_ns": 3 * DAY}):
        evil = rendered(members, trust, world, **change)
        refused(evil, trust, "16", "before the end of its window")


def rendered(members: dict[str, bytes], trust: Trust, world: World, **change: int) -> dict[str, bytes]:
    """Figures and renderings that agree with a changed statement."""
    value = dict(verify_octets(pack(members), trust).figures)
    if "made_ns" in change:
        value["made"] = figures.utc(change["made_ns"])
    if "lateness_ns" in change:
        value["lateness_ns"] = str(change["lateness_ns"])
    evil = members | {
        "figures.json": figures.encode(value), "report.html": html.render(value), "report.pdf": pdf.render(value),
    }  # fmt: skip
    return sign_again(evil, world.signer, **change)


@pytest.mark.parametrize("window", [(0, 1 << 63), (0, (1 << 64) - 1), ((1 << 63), (1 << 63) + 1)])
def test_a_window_past_64_bits_is_refused_and_never_a_crash(
    members: dict[str, bytes], trust: Trust, world: World, window: tuple[int, int]
) -> None:
    with pytest.raises(PackageInvalid):
        verify_octets(pack(sign_again(members, world.signer, window=window)), trust)
    with pytest.raises(ExportRefused):
        world.export(window=window, name="wide.zip")


# -- keys ---------------------------------------------------------------------------------------------------


def test_a_retired_key_signs_no_package_and_no_later_checkpoint(tmp_path: Path) -> None:
    made = make(tmp_path, logs=False)
    try:
        old, fresh = made.signer, signer(2, "ledger-2")
        before = unpack(made.export().path.read_bytes())
        made.ledger.announce_key(old, fresh, END + 1)
        made.signer = fresh
        made.tick(END + HOUR)
        done = made.export(window=(T0, END + 2), name="n.zip")
        trust, members = trust_of(done), unpack(done.path.read_bytes())
        assert VERIFIED == verify(done.path, trust).text
        changes = SignerFile.decode(members[SIGNER]).changes
        stolen = dict(before)  # the thief of the old key, who has the public history
        for history in (changes, changes[:1], []):
            stolen[SIGNER] = SignerFile(verifier_of(old), history).encode()
            refused(sign_again(stolen, old), trust, "3")
        branch = key_change_draft(made.ledger.origin(), old, signer(3, "x"), size=1, now_ns=1).public
        stolen[SIGNER] = SignerFile(verifier_of(signer(3, "x")), [*changes, branch]).encode()
        refused(sign_again(stolen, signer(3, "x")), trust, "3", "replaced or announced twice")
        text, _ = parse_note(members[CHECKPOINT])
        later = members | {CHECKPOINT: sign_checkpoint(parse_checkpoint(text), old)}
        refused(sign_again(later, fresh), trust, "7", "not in force")
        with pytest.raises(SignerChanged, match="before"):
            made.ledger.announce_key(fresh, old, END + 3)
    finally:
        made.db.stop()


def test_a_history_of_keys_is_one_line() -> None:
    a, b, c = (signer(n, f"k{n}") for n in (1, 2, 3))

    def change(old, new, size=4) -> dict:
        return dict(key_change_draft("o", old, new, size=size, now_ns=1).public)

    line = key_history(verifier_of(b), [change(None, a, 0), change(a, b, 3), change(b, c, 9)], "o")
    assert [verifier_of(x) for x in (a, b, c)] == list(line.keys)
    assert ["k1"] == [k.name for k in line.in_force(2)]
    assert ["k1", "k2"] == [k.name for k in line.in_force(3)]
    assert ["k3"] == [k.name for k in line.in_force(10)]
    for evil in (
        [change(a, b), change(a, c)], [change(a, c), change(b, c)], [change(a, b), change(b, a)],
        [change(a, b, 9), change(b, c, 3)], [change(None, a), change(None, c)], [change(a, b), change(a, b)],
        [change(None, b), change(a, b)], [change(a, a)],
    ):  # fmt: skip
        with pytest.raises(KeyHistoryInvalid):
            key_history(verifier_of(a), evil, "o")


# -- records that are true to the ledger and made to mislead --------------------------------------------------


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
        with pytest.raises(Exception, match=r"claims|does not know|committed|counted|method|grace"):
            made.export(window=WINDOW)
    finally:
        made.db.stop()


def test_an_attribution_whose_inputs_are_withheld_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator names a job list that the package lacks, so that nothing can be done again."""
    from evidence import attribution_run

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
    from evidence.package.model import Malformed
    from evidence.package.workbench import check_row

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
    from evidence.package.contents import _record_row
    from evidence.package.model import Malformed, PackedRecord, Range

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


# -- tables and renderings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@a", "\t=1", "\n=1", " =1", "\ufeff=1", "\uff1d1", "'x", "\r"]
)
def test_what_a_spreadsheet_could_take_for_a_formula_gets_an_apostrophe(text: str) -> None:
    from evidence.package.workbench import _cell

    assert _cell(text) == "\"'" + text + '"'


def test_plain_text_stays_plain() -> None:
    from evidence.package.workbench import _cell

    assert ['"a=b"', '""', '"a""b"', "7", ""] == [_cell(x) for x in ("a=b", "", 'a"b', 7, None)]


def test_renderings_show_no_hidden_characters_and_cut_visibly(members: dict[str, bytes]) -> None:
    value = json.loads(members["figures.json"])
    evil = "abc\u202egnp.exe\u200b\x9b31m"
    value["findings"] = [evil]
    value["scope"] = "s" * 253
    value["rotations"]["shown"] = [["t", "l", "W" * 4000, "W" * 4000, "", ""]]
    value["gate"]["shown"] = [["t", "W" * 4000, "W" * 4000, "W" * 4000, "W" * 4000]]
    page = html.render(value).decode()
    assert not any(ch in page for ch in "\u202e\u200b\x9b")
    assert pdf.render(value).startswith(b"%PDF")


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        ("residency.region", "residency.<wbr>region"),
        ("s3://bucket/a b", "s3://<wbr>bucket/<wbr>a b"),
        ("66.6 % at 10.0.0.1, 2025-03-03T00:00:00Z", "66.6 % at 10.0.0.1, 2025-03-03T00:00:00Z"),
        ("ab" * 16, "<wbr>".join(["ab" * 8] * 2)),
        ("interval-unattributable", "interval-unattributable"),
        ("a/<b>&'", "a/&lt;b&gt;&amp;&#x27;"),
    ],
)
def test_a_name_is_wrapped_where_a_reader_would(text: str, wrapped: str) -> None:
    assert wrapped == html.wrappable(text)


def test_a_tenant_sees_no_empty_columns_but_why(members: dict[str, bytes]) -> None:
    value = json.loads(members["figures.json"])
    page = html.render(value).decode()
    assert (False, True) == (">Lines</th>" in page, "not told here" in page)
    for source in value["sources"]:  # as the estate has it
        source[6:8] = ["24", "1"]
    page = html.render(value).decode()
    assert (True, False) == (">Lines</th><th scope=col class=n>Dup.</th>" in page, "not told here" in page)


# -- the container, again by both readers -----------------------------------------------------------------------


def eocd(octets: bytes) -> int:
    return octets.rindex(b"PK\x05\x06")


def comment(octets: bytes) -> bytes:
    return octets[:-2] + struct.pack("<H", 3) + b"abc"


def more_entries(octets: bytes) -> bytes:
    """The first central entry twice."""
    at = eocd(octets)
    n, _, size, offset = struct.unpack_from("<HHII", octets, at + 8)
    entry = octets[offset : octets.index(b"PK\x01\x02", offset + 4)]
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, n + 1, n + 1, size + len(entry), offset, 0)
    return octets[:at] + entry + end


TRICKS: dict[str, Callable[[bytes], bytes]] = {
    "octets before": lambda o: b"#!/bin/sh\n" + o,
    "another archive before": lambda o: o + o,
    "octets behind": lambda o: o + b"\x00",
    "a comment": comment,
    "an entry twice": more_entries,
    "a descriptor flag": lambda o: o[:6] + b"\x08\x00" + o[8:],
    "a utf-8 flag": lambda o: o[:6] + b"\x00\x08" + o[8:],
    "another date": lambda o: o[:12] + b"\x22" + o[13:],
    "a gap": lambda o: o[: eocd(o)] + b"\x00" * 4 + o[eocd(o) :],
    "zip64 end": lambda o: o[: eocd(o)] + b"PK\x06\x06" + bytes(52) + o[eocd(o) :],
    "cut off": lambda o: o[:-1],
    "half": lambda o: o[: len(o) // 2],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_with_the_container_are_refused_by_both(
    exported: Exported, members: dict[str, bytes], trust: Trust, tmp_path: Path, trick: str
) -> None:
    evil = TRICKS[trick](exported.path.read_bytes())
    with pytest.raises(PackageInvalid) as caught:
        verify_octets(evil, trust)
    assert "2" == caught.value.step
    done = second_path(tmp_path, members, evil, trust)
    assert 1 == done.returncode
    assert "hold" not in done.stdout


@pytest.mark.parametrize(
    "names",
    [("A.txt", "a.txt"), ("a", "a/b"), ("a.",), ("../a",), ("/a",), ("a//b",), ("ä",), ("con:",), ("a\\b",)],
)
def test_names_that_unpack_over_each_other_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises((ExportRefused, PackageInvalid)):
        container.read(b"".join(container.write(dict.fromkeys(names, b"x"))), "2", "p")


# -- the script ---------------------------------------------------------------------------------------------------


def test_the_script_refuses_what_hides_or_has_two_readings(
    members: dict[str, bytes], trust: Trust, world: World, tmp_path: Path, exported: Exported
) -> None:
    scope_id = exported.predicate.ranges[0].scope_id
    name = records_name(scope_id)
    lines = [json.loads(x) for x in members[name].splitlines()]

    def run(changed: dict[str, bytes], why: str) -> None:
        done = second_path(tmp_path, members, pack(changed), trust)
        assert (1, True) == (done.returncode, why in done.stderr), (why, done.stderr)
        with pytest.raises(PackageInvalid):
            verify_octets(pack(changed), trust)

    def records(change: Callable[[dict], dict]) -> dict[str, bytes]:
        body = (
            canonical(change(dict(lines[0]))) + b"\n" + b"".join(members[name].splitlines(keepends=True)[1:])
        )
        return sign_again(members | {name: body}, world.signer)

    from evidence.records import part_digest

    def hide(line: dict) -> dict:  # a leaf whose content nobody sees
        digest = part_digest(bytes.fromhex(line.pop("public_salt")), line.pop("public").encode())
        return line | {"public_digest": digest.hex()}

    def shift(line: dict) -> dict:
        return {k: v for k, v in line.items() if not k.startswith("sens")} | {"sensitive_digest": "00" * 33}

    run(records(hide), "public_salt")
    run(records(shift), "record 3")
    run(records(lambda line: line | {"seq": "4"}), "record 3")
    twice = members[name].replace(b'{"header":', b'{"seq":"3","header":', 1)
    run(sign_again(members | {name: twice}, world.signer), "a key twice")
    proofs = json.loads(members[proofs_name(scope_id)])
    nodes = "".join(proofs["frontier"]["nodes"])
    proofs["frontier"]["nodes"] = [nodes[:62], nodes[62:]]
    run(sign_again(members | {proofs_name(scope_id): canonical(proofs)}, world.signer), "begin of the range")
    statement = decode_canonical(base64.b64decode(json.loads(members[ENVELOPE])["payload"]))
    from evidence.package import dsse

    for change in (
        {"predicateType": "https://example.org/other"}, {"_type": "x"}, {"subject": statement["subject"] * 2},
        {"subject": [{"name": "other.json", "digest": statement["subject"][0]["digest"]}]},
    ):  # fmt: skip
        run(members | {ENVELOPE: dsse.seal(canonical(statement | change), world.signer)}, "NOT VERIFIED")
