"""Packages: what verifies, and every attack that must not."""

from __future__ import annotations

import base64
import json
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_world import DAY, HOUR, T0, World, make, signer, trust_of

from evidence.canonical import canonical, decode_canonical
from evidence.checkpoint import Checkpoint, parse_checkpoint, parse_note, sign_checkpoint, verifier_of
from evidence.errors import ExportRefused, PackageInvalid, TrustInvalid
from evidence.merkle import leaf_hash, root
from evidence.package import figures, html, pdf
from evidence.package.attacks import change_cell, flip, pack, recreate, sign_again, unpack
from evidence.package.build import Exported, export
from evidence.package.model import CHECKPOINT, ENVELOPE, FIGURES, HTML, MANIFEST, PDF, README, SCRIPT, SIGNER
from evidence.package.trust import SignerFile, Trust, read_trust, trust_of_fingerprint
from evidence.package.verify import NO_SCOPE, NO_SIGNER, VERIFIED, _verify, verify, verify_octets
from evidence.signing import key_change_draft

MALLORY = signer(66, "ledger")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = make(tmp_path_factory.mktemp("package"))
    yield made
    made.db.stop()


@pytest.fixture(scope="module")
def exported(world: World) -> Exported:
    return world.export()


@pytest.fixture(scope="module")
def octets(exported: Exported) -> bytes:
    return exported.path.read_bytes()


@pytest.fixture(scope="module")
def trust(exported: Exported) -> Trust:
    return trust_of(exported)


@pytest.fixture
def members(octets: bytes) -> dict[str, bytes]:
    return unpack(octets)


@pytest.fixture(scope="module")
def scope_id(exported: Exported) -> str:
    return exported.predicate.ranges[0].scope_id


def refused(members: dict[str, bytes], trust: Trust, step: str, place: str = "") -> PackageInvalid:
    with pytest.raises(PackageInvalid) as caught:
        verify_octets(pack(members), trust)
    assert step == caught.value.step, str(caught.value)
    assert place in str(caught.value)
    return caught.value


# -- what verifies ------------------------------------------------------------------------------------------


def test_a_package_verifies_with_its_trust_file(exported: Exported, trust: Trust) -> None:
    verdict = verify(exported.path, trust)
    assert (VERIFIED, exported.sha256, []) == (verdict.text, verdict.sha256, list(verdict.notes))
    assert ["self-asserted", "custody: embedded (not separated)"] == list(verdict.labels)


def test_without_a_trust_root_the_signer_is_not_established(octets: bytes) -> None:
    assert NO_SIGNER == verify_octets(octets, Trust()).text


def test_a_fingerprint_alone_establishes_the_signer_and_not_the_scope(
    octets: bytes, exported: Exported, scope_id: str
) -> None:
    assert NO_SCOPE == verify_octets(octets, trust_of_fingerprint(exported.fingerprint)).text
    assert (
        VERIFIED == verify_octets(octets, trust_of_fingerprint(exported.fingerprint, {"acme": scope_id})).text
    )


def test_equal_inputs_give_equal_octets(world: World, octets: bytes) -> None:
    assert octets == world.export(name="again.zip").path.read_bytes()


def test_the_estate_package_verifies_and_shows_what_a_tenants_withholds(
    world: World, members: dict[str, bytes], scope_id: str
) -> None:
    estate = world.export("estate", name="estate.zip")
    assert VERIFIED == verify(estate.path, trust_of(estate)).text
    assert b'"lines"' in unpack(estate.path.read_bytes())[
        f"records/{estate.predicate.ranges[0].scope_id}.ndjson"
    ].replace(b"\\", b"")
    told = unpack(estate.path.read_bytes())
    for table, cells in {
        "rotations": (b'"rolled back","counters_differ"', b'"complete",'),
        "gate": (b'"reopen"', b'"clear_frame"', b'"permit"'),
        "links": (b'"cw-aws-1"',),
    }.items():
        assert all(cell in told[f"tables/{table}.csv"] for cell in cells), table
        assert b"rolled back" not in members["tables/rotations.csv"]
    lines = [json.loads(x) for x in members[f"records/{scope_id}.ndjson"].splitlines()]
    for line in lines:
        kind = json.loads(line["header"])["kind"]
        assert (kind in ("link_verdict", "source_object")) == ("sensitive_digest" in line)


def test_a_tenants_package_reveals_nothing_of_others(octets: bytes, world: World) -> None:
    assert b"OutPktsEncrypted" not in octets  # counters of a shared link
    for foreign in (
        b"train-us/1301",
        b"globex-images",
        b"img/0000.zip",
        b"|gil|",
        world.ledger.read(lambda v: v.find_scope("globex")).encode(),
    ):
        assert foreign not in octets


def test_a_window_begins_at_the_last_checkpoint_before_it(exported: Exported) -> None:
    assert 3 == exported.predicate.ranges[0].begin


def test_a_window_without_a_checkpoint_after_it_is_provisional(world: World) -> None:
    done = world.export(window=(T0, T0 + 5 * DAY), name="late.zip")
    verdict = verify(done.path, trust_of(done))
    assert (VERIFIED, True) == (verdict.text, "provisional" in verdict.labels)


def test_an_empty_window_of_an_idle_scope_verifies(world: World) -> None:
    done = world.export(window=(T0 + DAY + 2 * HOUR, T0 + DAY + 3 * HOUR), name="idle.zip")
    assert done.predicate.ranges[0].begin == done.predicate.ranges[0].end
    assert VERIFIED == verify(done.path, trust_of(done)).text


def test_faults_in_the_window_are_said(tmp_path: Path) -> None:
    made = make(tmp_path, logs=False, faults=True)
    try:
        done = made.export()
        verdict = verify(done.path, trust_of(done))
        assert "faults enabled" in verdict.labels
        hidden = sign_again(unpack(done.path.read_bytes()), made.signer, faults=False)
        refused(hidden, trust_of(done), "15")  # the figures say so
        for render, name in ((figures.encode, FIGURES), (html.render, HTML), (pdf.render, PDF)):
            value = dict(verdict.figures)
            value["labels"] = [x for x in value["labels"] if x != "faults enabled"]
            value["findings"] = [x for x in value["findings"] if not x.startswith("Fault injection")]
            hidden[name] = render(value)
        refused(sign_again(hidden, made.signer), trust_of(done), "16", "faults")
    finally:
        made.db.stop()


def test_a_rotated_key_verifies_from_the_old_trust_file(tmp_path: Path) -> None:
    made = make(tmp_path, logs=False)
    try:
        old = trust_of(made.export())
        fresh = signer(2, "ledger-2")
        made.ledger.announce_key(made.signer, fresh, T0 + DAY + 2 * HOUR)
        made.signer = fresh
        made.tick(T0 + DAY + 3 * HOUR)
        done = export(
            made.db,
            fresh,
            "acme",
            (T0, T0 + DAY + 2 * HOUR),
            tmp_path / "n.zip",
            sources=tmp_path,
            now_ns=T0 + 2 * DAY,
        )
        assert VERIFIED == verify(done.path, old).text
        before = made.export(name="before.zip")  # its checkpoint bears the old key's signature
        assert VERIFIED == verify(before.path, old).text
        assert VERIFIED == verify(before.path, trust_of(before)).text
        made.signer = MALLORY
        with pytest.raises(ExportRefused, match="not of this ledger"):
            made.export(name="evil.zip")
        members = unpack(done.path.read_bytes())
        _forge(members, old, fresh)
    finally:
        made.db.stop()


def _forge(members: dict[str, bytes], old: Trust, honest) -> None:
    """Key histories that lead to another key without the old key's signature."""
    file = SignerFile.decode(members[SIGNER])
    origin = str(old.origin)
    forged = dict(key_change_draft(origin, MALLORY, signer(67, "next"), size=1, now_ns=5).public)
    statement = decode_canonical(forged["statement"].encode())
    statement["old"] = old.keys[0].vkey()  # says the trusted key signed it
    data = canonical(statement)
    forged["statement"] = data.decode()
    forged["new_signature"] = base64.b64encode(signer(67, "next").sign(data)).decode()
    forged["old_signature"] = base64.b64encode(MALLORY.sign(data)).decode()
    stripped = dict(forged)
    del stripped["old_signature"]
    unlinked = dict(key_change_draft(origin, None, signer(67, "next"), size=1, now_ns=5).public)
    elsewhere = dict(key_change_draft("other/log", honest, signer(67, "next"), size=1, now_ns=5).public)
    for change in (forged, stripped, unlinked, elsewhere):
        for changes in ([*file.changes, change], [change]):
            evil = recreate(members, signer(67, "next"))
            evil[SIGNER] = SignerFile(verifier_of(signer(67, "next")), changes).encode()
            refused(sign_again(evil, signer(67, "next")), old, "3", SIGNER)


def test_the_package_of_the_first_format_still_verifies(vectors: Path) -> None:
    """The format is frozen: made once, by `python tests/unit/evidence/package_world.py`."""
    trust = read_trust((vectors / "package_v1.trust.json").read_bytes())
    assert VERIFIED == verify(vectors / "package_v1.zip", trust).text


# -- flips --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [ENVELOPE, CHECKPOINT, SIGNER])
def test_every_single_bit_flip_in_signed_heads_is_refused(
    members: dict[str, bytes], trust: Trust, name: str
) -> None:
    views = {n: memoryview(d) for n, d in members.items()}
    for bit in range(len(members[name]) * 8):
        with pytest.raises(PackageInvalid):
            _verify(views | {name: memoryview(flip(members[name], bit))}, trust, "")


def test_random_flips_in_the_file_are_refused(octets: bytes, trust: Trust) -> None:
    rng = random.Random(1)
    for _ in range(300):
        with pytest.raises(PackageInvalid):
            verify_octets(flip(octets, rng.randrange(len(octets) * 8)), trust)


def test_random_flips_in_members_are_refused_even_signed_again(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    rng = random.Random(2)
    names = [n for n in sorted(members) if n not in (ENVELOPE, MANIFEST) and members[n]]
    for name in rng.sample(names, 25):
        changed = dict(members)
        changed[name] = flip(members[name], rng.randrange(len(members[name]) * 8))
        with pytest.raises(PackageInvalid):
            verify_octets(pack(sign_again(changed, world.signer)), trust)


# -- a package re-created or re-signed -----------------------------------------------------------------------


def test_a_package_recreated_under_another_key_is_refused(members: dict[str, bytes], trust: Trust) -> None:
    evil = recreate(members, MALLORY)
    refused(evil, trust, "3", "does not vouch")
    assert (
        NO_SIGNER == verify_octets(pack(evil), Trust()).text
    )  # why a trust root from inside would be worthless
    refused(evil, trust_of_fingerprint(trust.keys[0].fingerprint), "3")


def test_an_envelope_by_another_key_is_refused(members: dict[str, bytes], trust: Trust) -> None:
    refused(sign_again(members, MALLORY), trust, "4", "another key")


def test_a_checkpoint_by_another_key_is_refused(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    text, _ = parse_note(members[CHECKPOINT])
    members[CHECKPOINT] = sign_checkpoint(parse_checkpoint(text), signer(66, "mallory"))
    refused(sign_again(members, world.signer), trust, "7", "no accepted key")


def test_a_second_signature_that_nothing_checks_is_refused(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    text, _ = parse_note(members[CHECKPOINT])
    extra = sign_checkpoint(parse_checkpoint(text), signer(66, "mallory")).split(b"\n\n")[1]
    members[CHECKPOINT] += extra
    refused(sign_again(members, world.signer), trust, "7")


def test_a_wrong_scope_id_in_the_trust_file_is_refused(octets: bytes, trust: Trust) -> None:
    for scopes, why in (({"acme": "0" * 32}, "another id"), ({"globex": "0" * 32}, "names no scope")):
        with pytest.raises(PackageInvalid, match=why):
            verify_octets(octets, Trust(trust.origin, trust.keys, None, scopes))


def test_another_tenants_package_is_not_taken_for_ones_own(world: World, trust: Trust) -> None:
    foreign = world.export("globex", name="globex.zip")
    with pytest.raises(PackageInvalid, match="names no scope"):
        verify(foreign.path, trust)
    renamed = sign_again(unpack(foreign.path.read_bytes()), world.signer)
    with pytest.raises(PackageInvalid, match="another id"):
        verify_octets(pack(renamed), Trust(trust.origin, trust.keys, None, {"globex": trust.scopes["acme"]}))


def test_a_checkpoint_of_another_origin_is_refused(octets: bytes, trust: Trust) -> None:
    with pytest.raises(PackageInvalid):
        verify_octets(octets, Trust("sluicegate.io/ledger/other", trust.keys, None, trust.scopes))


def test_a_changed_table_cell_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    evil = change_cell(members, "decisions", b'"false"', b'"true"')
    refused(sign_again(evil, world.signer), trust, "14", "tables/decisions.csv, line")
    evil = change_cell(members, "methods", b"7,", b"8,")
    refused(sign_again(evil, world.signer), trust, "14", "tables/methods.csv")


def test_a_changed_parquet_cell_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World, tmp_path: Path
) -> None:
    import duckdb

    name = "tables/decisions.parquet"
    (tmp_path / "in.parquet").write_bytes(members[name])
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT * FROM '{tmp_path}/in.parquet'")
    con.execute(f"COPY t TO '{tmp_path}/same.parquet' (FORMAT parquet, COMPRESSION zstd)")
    same = members | {name: (tmp_path / "same.parquet").read_bytes()}
    refused(sign_again(same, world.signer), trust, "14", name)  # the same writer gives the same octets
    other = {**world.export().predicate.tool, "duckdb": "1.4.0"}
    value = json.loads(members[FIGURES])
    value["tool"] = sorted([k, v] for k, v in other.items())
    same |= {FIGURES: canonical(value), HTML: html.render(value), PDF: pdf.render(value)}
    verdict = verify_octets(pack(sign_again(same, world.signer, tool=other)), trust)
    assert (VERIFIED, True) == (verdict.text, "compared by content" in verdict.notes[0])
    con.execute("UPDATE t SET allowed = 'true'")
    con.execute(f"COPY t TO '{tmp_path}/evil.parquet' (FORMAT parquet)")
    for junk in ((tmp_path / "evil.parquet").read_bytes(), b"", b"PAR1" + b"\x00" * 40 + b"PAR1"):
        refused(sign_again(members | {name: junk}, world.signer), trust, "14", name)
        refused(sign_again(same | {name: junk}, world.signer, tool=other), trust, "14", name)


def test_a_changed_figure_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    value = json.loads(members[FIGURES])
    value["decisions"]["refused"] = 0
    evil = members | {FIGURES: canonical(value), HTML: html.render(value), PDF: pdf.render(value)}
    refused(sign_again(evil, world.signer), trust, "15", FIGURES)
    refused(sign_again(members | {HTML: html.render(value)}, world.signer), trust, "15", HTML)
    refused(sign_again(members | {PDF: pdf.render(value)}, world.signer), trust, "17", PDF)


def test_a_flipped_decision_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World, scope_id: str
) -> None:
    name = f"records/{scope_id}.ndjson"
    evil = members | {name: members[name].replace(b'\\"allowed\\":false', b'\\"allowed\\":true', 1)}
    assert evil[name] != members[name]
    refused(sign_again(evil, world.signer), trust, "9", name)


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_dropped_leaf_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World, scope_id: str, where: str
) -> None:
    name = f"records/{scope_id}.ndjson"
    lines = members[name].splitlines(keepends=True)
    del lines[{"first": 0, "middle": len(lines) // 2, "last": -1}[where]]
    error = refused(
        sign_again(members | {name: b"".join(lines)}, world.signer),
        trust,
        "9" if where == "last" else "10",
        name,
    )
    assert where == "last" or "record acme" in error.record


def test_reordered_and_added_leaves_are_refused(
    members: dict[str, bytes], trust: Trust, world: World, scope_id: str
) -> None:
    name = f"records/{scope_id}.ndjson"
    lines = members[name].splitlines(keepends=True)
    for changed in ([lines[1], lines[0], *lines[2:]], [*lines, lines[-1]]):
        refused(sign_again(members | {name: b"".join(changed)}, world.signer), trust, "10", name)


def test_a_shortened_range_with_its_own_proofs_needs_a_checkpoint_that_says_so(
    members: dict[str, bytes], trust: Trust, world: World, scope_id: str
) -> None:
    name = f"proofs/{scope_id}.json"
    proofs = json.loads(members[name])
    proofs["begin"], proofs["frontier"] = None, {"size": "0", "nodes": []}
    refused(sign_again(members | {name: canonical(proofs)}, world.signer), trust, "8", name)
    lying = json.loads(members[name])
    lying["end"]["size"] = str(int(lying["end"]["size"]) - 1)
    refused(sign_again(members | {name: canonical(lying)}, world.signer), trust, "8", name)


def test_a_part_withheld_that_must_be_released_is_refused(
    members: dict[str, bytes], trust: Trust, world: World, scope_id: str
) -> None:
    name = f"records/{scope_id}.ndjson"
    lines = [json.loads(x) for x in members[name].splitlines()]
    from evidence.records import part_digest

    line = lines[0]
    line["sensitive_digest"] = part_digest(
        bytes.fromhex(line.pop("sensitive_salt")), line.pop("sensitive").encode()
    ).hex()
    evil = b"".join(canonical(x) + b"\n" for x in lines)
    refused(sign_again(members | {name: evil}, world.signer), trust, "10", "withholds")


def test_a_changed_row_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    name = next(n for n in members if n.startswith("segments/") and b"AccessDenied" in members[n])
    evil = members | {name: members[name].replace(b"AccessDenied", b"AccessDenier")}
    refused(sign_again(evil, world.signer), trust, "11", name)
    rows = members[name].splitlines(keepends=True)
    refused(sign_again(members | {name: b"".join(rows[1:])}, world.signer), trust, "11", "rows")


def test_changed_sql_readme_or_script_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    for name in ("sql/decisions.sql", "sql/attribution.sql", README, SCRIPT):
        refused(sign_again(members | {name: members[name] + b" "}, world.signer), trust, "12", name)


def test_a_member_added_or_left_out_is_refused_though_signed_again(
    members: dict[str, bytes], trust: Trust, world: World
) -> None:
    refused(sign_again(members | {"extra.txt": b"x"}, world.signer), trust, "6", "extra.txt")
    for name in ("tables/links.csv", FIGURES, "sql/links.sql"):
        less = {n: d for n, d in members.items() if n != name}
        refused(sign_again(less, world.signer), trust, "6", name)
    refused(members | {"extra.txt": b"x"}, trust, "6", "extra.txt")


def test_a_claim_to_be_anchored_is_refused(members: dict[str, bytes], trust: Trust, world: World) -> None:
    evil = sign_again(members, world.signer, anchored="anchored by TSA")
    with pytest.raises(PackageInvalid):
        verify_octets(pack(evil), trust)


def test_an_attribution_that_was_committed_wrongly_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator commits a false match: root and proofs hold, but the inputs give another result."""
    from evidence.package import build
    from evidence.sources import segments

    original = segments.SegmentWriter.add

    def lie(self, row, begin_ns=None, end_ns=None):
        if row.get("method") == "unmatched":
            row = row | {"method": "interval-unique", "job_key": "train-us/1205/1740992400/0"}
        return original(self, row, begin_ns, end_ns)

    monkeypatch.setattr(segments.SegmentWriter, "add", lie)
    made = make(tmp_path)
    try:
        with pytest.raises(Exception, match="does not repeat"):
            made.export()
        monkeypatch.setattr(build, "repeatable", lambda run, contents: False)  # an operator's own build
        done = made.export()
        with pytest.raises(PackageInvalid, match="not what the inputs give") as caught:
            verify(done.path, trust_of(done))
        assert "access" in caught.value.record
    finally:
        made.db.stop()


# -- the second path, sockets, trust files -------------------------------------------------------------------


def second_path(
    folder: Path, members: dict[str, bytes], octets: bytes, trust: Trust
) -> subprocess.CompletedProcess[str]:
    for name, data in (("p.zip", octets), ("t.json", trust.encode()), ("v.py", members[SCRIPT])):
        (folder / name).write_bytes(data)
    command = [sys.executable, "-I", str(folder / "v.py"), str(folder / "p.zip"), str(folder / "t.json")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_second_path_agrees(
    members: dict[str, bytes], octets: bytes, trust: Trust, tmp_path: Path, world: World, scope_id: str
) -> None:
    assert members[SCRIPT].rstrip() in members[README]
    assert len(members[SCRIPT].splitlines()) <= 80
    done = second_path(tmp_path, members, octets, trust)
    assert (0, True) == (done.returncode, "records 3 to 21" in done.stdout), done.stderr
    name = f"records/{scope_id}.ndjson"
    dropped = members | {name: b"".join(members[name].splitlines(keepends=True)[:-1])}
    text, _ = parse_note(members[CHECKPOINT])
    other = members | {CHECKPOINT: sign_checkpoint(parse_checkpoint(text), MALLORY)}
    lying = parse_checkpoint(text)
    wrong_root = members | {
        CHECKPOINT: sign_checkpoint(Checkpoint(lying.origin, lying.size, bytes(32)), world.signer)
    }
    for evil, key, why in (
        (members, MALLORY, "envelope signature"),
        (dropped, world.signer, "whole range"),
        (other, world.signer, "checkpoint signature"),
        (wrong_root, world.signer, "tick proof"),
    ):
        done = second_path(tmp_path, members, pack(sign_again(evil, key)), trust)
        assert (1, True) == (done.returncode, why in done.stderr), done.stderr
    changed = pack(members | {FIGURES: members[FIGURES] + b" "})
    assert "digest of figures.json" in second_path(tmp_path, members, changed, trust).stderr


def test_verifying_opens_no_socket(exported: Exported, trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert VERIFIED == verify(exported.path, trust).text


def test_hostile_text_is_shown_as_text(members: dict[str, bytes], trust: Trust) -> None:
    assert b"<b>&" not in members[HTML]
    assert b"&lt;b&gt;&amp;" in members[HTML]
    assert b"<script" not in members[HTML]
    cells = members["tables/accesses.csv"]
    assert b"\"'=cmd%7C" in cells  # a formula gets an apostrophe; the Parquet copy has the key itself


def test_a_markup_value_opens_no_file_in_the_report(members: dict[str, bytes]) -> None:
    value = json.loads(members[FIGURES])
    value["findings"] = ['<img src="file:///etc/hostname"> <b>a<b', "\u202e\x07 \u4e2d", "x" * 5000]
    assert pdf.render(value) == pdf.render(value)


def test_a_long_list_is_drawn_in_linear_time(members: dict[str, bytes]) -> None:
    value = json.loads(members[FIGURES])
    value["decisions"]["shown"] = [["t", "c", "n", "k", "name", "rule", "reason " * 5]] * 600
    assert pdf.render(value).startswith(b"%PDF")


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"type": "x"}, {"keys": []}, {"keys": ["x"]}, {"scopes": {"acme": "x"}}, {"extra": 1},
        {"fingerprints": ["00" * 32]}, {"origin": None},
    ],
)  # fmt: skip
def test_trust_files_out_of_form_are_refused(trust: Trust, change: dict) -> None:
    value = json.loads(trust.encode()) | change
    with pytest.raises(TrustInvalid):
        read_trust(json.dumps(value).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"null", b'{"v":1}', b"[" * 100_000])
def test_junk_is_no_trust_file(data: bytes) -> None:
    with pytest.raises(TrustInvalid):
        read_trust(data)


def test_a_fingerprint_may_have_colons_and_not_another_length() -> None:
    assert "ab" * 32 == trust_of_fingerprint(":".join(["AB"] * 32)).fingerprint
    with pytest.raises(TrustInvalid):
        trust_of_fingerprint("ab")


def test_a_row_path_and_a_record_path_prove_one_access(members: dict[str, bytes]) -> None:
    name = next(n for n in members if n.startswith("segments/") and b"AccessDenied" in members[n])
    rows = members[name].splitlines()
    assert root([leaf_hash(r) for r in rows]).hex().encode() in b"".join(
        d for n, d in members.items() if n.startswith("records/")
    )
