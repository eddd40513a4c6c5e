"""The operator who cheats and holds the key: a manifest, ranges and records that must not verify."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from package_checks import refused
from package_world import END, HOUR, T0, World, decision, make, trust_of

from evidence import append, dsse, kinds
from evidence.canonical import canonical
from evidence.errors import PackageInvalid
from evidence.package import collect as collecting
from evidence.package import container
from evidence.package.attacks import pack, sign_again, unpack
from evidence.package.build import Exported
from evidence.package.contents import statement
from evidence.package.model import (
    ENVELOPE,
    FIGURES,
    MANIFEST,
    PAYLOAD_TYPE,
    proofs_name,
    records_name,
)
from evidence.package.trust import Trust
from evidence.package.verify import verify_octets

Listed = list[dict[str, Any]]


def sizes(changed: dict[str, str]) -> Callable[[Listed], Listed]:
    return lambda listed: [m | {"size": changed.get(m["name"], m["size"])} for m in listed]


MANIFESTS: dict[str, tuple[Callable[[Listed], Listed], str]] = {
    "a member twice": (lambda listed: [listed[0], *listed], "twice or out of order"),
    "another order": (lambda listed: [listed[1], listed[0], *listed[2:]], "twice or out of order"),
    "one left out": (lambda listed: listed[1:], "present and not listed"),
    "one that is not there": (lambda listed: [*listed, listed[-1] | {"name": "zzz"}], "listed and missing"),
    "another size": (sizes({FIGURES: "1"}), "differs from its size"),
    "a size with a zero in front": (
        lambda listed: sizes({FIGURES: _padded(listed)})(listed),
        "differs from its size",
    ),
    "another digest": (
        lambda listed: [listed[0] | {"sha256": "00" * 32}, *listed[1:]],
        "differs from its size",
    ),
    "a field more": (lambda listed: [listed[0] | {"note": "x"}, *listed[1:]], "unknown fields"),
    "no objects": (lambda listed: [m["name"] for m in listed], "not an object"),
}


def _padded(listed: Listed) -> str:
    return "0" + next(m["size"] for m in listed if m["name"] == FIGURES)


@pytest.mark.parametrize("how", MANIFESTS)
def test_a_manifest_that_says_otherwise_is_refused_though_signed(
    members: dict[str, bytes], trust: Trust, world: World, exported: Exported, how: str
) -> None:
    change, why = MANIFESTS[how]
    listed = change(json.loads(members[MANIFEST])["members"])
    members[MANIFEST] = canonical({"v": 1, "members": listed})
    body = statement(hashlib.sha256(members[MANIFEST]).hexdigest(), exported.predicate)
    members[ENVELOPE] = dsse.seal(PAYLOAD_TYPE, body, world.signer)
    refused(members, trust, "6", why)


@pytest.mark.parametrize(
    "change", [{"begin": 2}, {"begin": 4}, {"end": 20}, {"end": 22}, {"begin": 0, "end": 0}]
)
def test_a_range_other_than_its_proofs_is_refused(
    members: dict[str, bytes], trust: Trust, world: World, exported: Exported, change: dict[str, int]
) -> None:
    stated = replace(exported.predicate.ranges[0], **change)
    refused(sign_again(members, world.signer, ranges=(stated,)), trust, "8", "not the one between")


def test_a_frontier_of_another_size_than_the_begin_is_refused(
    members: dict[str, bytes], trust: Trust, world: World, scope_id: str
) -> None:
    name = proofs_name(scope_id)
    proofs = json.loads(members[name])
    proofs["frontier"] = {"size": "2", "nodes": proofs["frontier"]["nodes"][:1]}
    refused(sign_again(members | {name: canonical(proofs)}, world.signer), trust, "8", "not the one between")


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (None, "kind or version"),
        ({"version": 2}, "kind or version"),
        ({"public": frozenset({"decision_id"})}, "does not declare"),
        ({"sensitive": frozenset({"name"})}, "does not declare"),
    ],
)
def test_a_record_of_an_unknown_form_is_refused(
    octets: bytes, trust: Trust, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any] | None, why: str
) -> None:
    """As a release sees it that does not know the kind, or knows another version or other fields of it."""
    if known is None:
        monkeypatch.delitem(kinds.KINDS, "decision")
    else:
        monkeypatch.setitem(kinds.KINDS, "decision", replace(kinds.KINDS["decision"], **known))
    with pytest.raises(PackageInvalid, match=why) as caught:
        verify_octets(octets, trust)
    assert ("10", "record acme 3") == (caught.value.step, caught.value.record)


def test_a_part_released_that_must_be_withheld_is_refused(
    world: World, trust: Trust, scope_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as loose:
        loose.setattr(collecting, "releases", lambda _kind, *, estate: True)
        done = world.export(name="loose.zip")
    assert b"OutPktsEncrypted" in done.path.read_bytes()
    error = refused(unpack(done.path.read_bytes()), trust, "10", "releases a part")
    assert (records_name(scope_id), "record acme") == (error.member, error.record[:11])


def test_a_record_of_another_scope_is_refused_though_it_is_a_leaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator's own sequencer files another tenant's record under this one."""
    made = make(tmp_path, logs=False)
    try:
        ids, real = made.ledger.ensure_scopes(), append._take_apart

        def elsewhere(spool_no: int, seq: int, frame: bytes) -> tuple[str, bytes, tuple[Any, ...]]:
            _, leaf, row = real(spool_no, seq, frame)
            return ids["acme"], leaf, row

        monkeypatch.setattr(append, "_take_apart", elsewhere)
        made.now = END
        made.commit([decision("globex", 70, allowed=True)])
        made.tick(END + HOUR)
        done = made.export(window=(T0, END + 1))
        refused(unpack(done.path.read_bytes()), trust_of(done), "10", "written for another scope")
    finally:
        made.db.stop()


def test_names_that_unpack_over_each_other_are_refused_by_the_reader_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = container._apart
    for names in (("A.txt", "a.txt"), ("a", "a/b")):
        monkeypatch.setattr(container, "_apart", lambda _names: True)
        octets = pack(dict.fromkeys(names, b"x"))
        monkeypatch.setattr(container, "_apart", real)
        with pytest.raises(PackageInvalid, match="over each other"):
            container.read(octets, "2", "p")
