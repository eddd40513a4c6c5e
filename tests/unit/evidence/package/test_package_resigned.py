"""A package that was changed and signed again, by another key or by the ledger's own."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from package_checks import MALLORY, refused
from package_world import World, signer

from evidence.canonical import canonical
from evidence.checkpoint import parse_checkpoint, parse_note, sign_checkpoint
from evidence.errors import PackageInvalid
from evidence.package import html, pdf
from evidence.package.attacks import change_cell, pack, recreate, sign_again
from evidence.package.model import CHECKPOINT, FIGURES, HTML, PDF, README, SCRIPT
from evidence.package.trust import Trust, trust_of_fingerprint
from evidence.package.verify import NO_SIGNER, VERIFIED, verify_octets
from evidence.records import part_digest


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
    refused(sign_again(members, world.signer), trust, "7", "nothing here checks")


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
