"""Packages that verify: what is established, what is in them, what they show of others."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from package_checks import refused
from package_world import DAY, END, HOUR, T0, World, decision, make, signer, trust_of

from evidence.database import Database
from evidence.errors import ExportRefused, SourceRefused
from evidence.ledger import Ledger
from evidence.merkle import leaf_hash, root
from evidence.package import figures, html, pdf
from evidence.package.attacks import pack, sign_again, unpack
from evidence.package.build import Exported
from evidence.package.model import FIGURES, HTML, PDF, README, SCRIPT
from evidence.package.trust import Trust, read_trust, trust_of_fingerprint
from evidence.package.verify import END_IS_STATED, NO_SCOPE, NO_SIGNER, VERIFIED, verify, verify_octets


def test_a_package_verifies_with_its_trust_file(exported: Exported, trust: Trust) -> None:
    verdict = verify(exported.path, trust)
    assert (VERIFIED, exported.sha256, [END_IS_STATED]) == (verdict.text, verdict.sha256, list(verdict.notes))
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
    assert [] == list(verdict.notes), "that the range ends early is a label here"


def test_an_empty_window_of_an_idle_scope_verifies(world: World) -> None:
    done = world.export(window=(T0 + DAY + 2 * HOUR, T0 + DAY + 3 * HOUR), name="idle.zip")
    assert done.predicate.ranges[0].begin == done.predicate.ranges[0].end
    assert VERIFIED == verify(done.path, trust_of(done)).text


def test_a_window_that_has_not_begun_makes_no_package(world: World) -> None:
    with pytest.raises(ExportRefused, match="has not begun"):
        world.export(window=(T0 + 2 * DAY, T0 + 3 * DAY))


def test_figures_that_no_json_of_ours_can_hold_make_no_package(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = figures.figures
    monkeypatch.setattr(figures, "figures", lambda *args: real(*args) | {"labels": 1 << 60})
    with pytest.raises(ExportRefused, match="cannot be tabulated"):
        world.export(name="wide.zip")
    assert not (world.folder / "wide.zip").exists()


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


def test_a_window_whose_rows_are_gone_or_changed_makes_no_package(tmp_path: Path) -> None:
    made = make(tmp_path)
    try:
        members = unpack(made.export("acme", name="whole.zip").path.read_bytes())
        idents = [Path(name).stem for name in members if name.startswith("segments/")]
        first, second, *_ = (made.folder / "sources" / "segments" / f"{ident}.parquet" for ident in idents)
        kept = first.read_bytes()
        first.unlink()
        with pytest.raises(SourceRefused, match="not stored here"):
            made.export("acme")
        for changed in (second.read_bytes(), kept[:-1], b"", b"PAR1"):
            first.write_bytes(changed)
            with pytest.raises(SourceRefused, match="was changed"):
                made.export("acme")
        assert not (made.folder / "acme.zip").exists()
        first.write_bytes(kept)
        made.export("acme")
    finally:
        made.db.stop()


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


def test_the_package_of_the_first_format_still_verifies(vectors: Path) -> None:
    """The format is frozen: made once, by `python tests/unit/evidence/package_world.py`."""
    trust = read_trust((vectors / "package_v1.trust.json").read_bytes())
    verdict = verify(vectors / "package_v1.zip", trust)
    assert VERIFIED == verdict.text
    assert "README.md, verify80.py: of an earlier release" in verdict.notes[0]


def test_readme_and_script_of_an_earlier_release_stand_together_or_not_at_all(
    vectors: Path, members: dict[str, bytes], trust: Trust, world: World
) -> None:
    earlier = unpack((vectors / "package_v1.zip").read_bytes())
    both = members | {name: earlier[name] for name in (README, SCRIPT)}
    assert VERIFIED == verify_octets(pack(sign_again(both, world.signer)), trust).text
    for name in (README, SCRIPT):
        refused(sign_again(members | {name: earlier[name]}, world.signer), trust, "12", name)
        refused(sign_again(both | {name: both[name] + b" "}, world.signer), trust, "12")


def test_verifying_opens_no_socket(exported: Exported, trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert VERIFIED == verify(exported.path, trust).text


def test_a_row_path_and_a_record_path_prove_one_access(members: dict[str, bytes]) -> None:
    name = next(n for n in members if n.startswith("segments/") and b"AccessDenied" in members[n])
    rows = members[name].splitlines()
    assert root([leaf_hash(r) for r in rows]).hex().encode() in b"".join(
        d for n, d in members.items() if n.startswith("records/")
    )
