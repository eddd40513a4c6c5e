"""Trust files and key histories: which key may have signed what."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from package_checks import MALLORY, refused
from package_world import DAY, END, HOUR, T0, World, make, signer, trust_of

from evidence.canonical import canonical, decode_canonical
from evidence.checkpoint import parse_checkpoint, parse_note, sign_checkpoint, verifier_of
from evidence.errors import ExportRefused, KeyHistoryInvalid, PackageInvalid, SignerChanged, TrustInvalid
from evidence.package.attacks import pack, recreate, sign_again, unpack
from evidence.package.build import export
from evidence.package.model import CHECKPOINT, SIGNER
from evidence.package.trust import SignerFile, Trust, read_trust, trust_of_fingerprint
from evidence.package.verify import VERIFIED, verify, verify_octets
from evidence.signing import key_change_draft, key_history


def test_a_wrong_scope_id_in_the_trust_file_is_refused(octets: bytes, trust: Trust) -> None:
    for scopes, why in (({"acme": "0" * 32}, "another id"), ({"globex": "0" * 32}, "names no scope")):
        with pytest.raises(PackageInvalid, match=why):
            verify_octets(octets, Trust(trust.origin, trust.keys, None, scopes))


def test_the_trust_file_of_another_ledger_is_named_as_such(octets: bytes, trust: Trust) -> None:
    with pytest.raises(PackageInvalid, match=f"signing keys are of log {trust.origin}, the trust root") as no:
        verify_octets(octets, Trust("sluicegate.io/ledger/other", trust.keys, None, trust.scopes))
    assert "give the trust file that belongs to this ledger" == no.value.fix


def test_another_tenants_package_is_not_taken_for_ones_own(world: World, trust: Trust) -> None:
    foreign = world.export("globex", name="globex.zip")
    with pytest.raises(PackageInvalid, match="names no scope"):
        verify(foreign.path, trust)
    renamed = sign_again(unpack(foreign.path.read_bytes()), world.signer)
    with pytest.raises(PackageInvalid, match="another id"):
        verify_octets(pack(renamed), Trust(trust.origin, trust.keys, None, {"globex": trust.scopes["acme"]}))


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"type": "x"}, {"keys": []}, {"keys": ["x"]}, {"scopes": {"acme": "x"}}, {"extra": 1},
        {"fingerprints": ["00" * 32]}, {"origin": None},
    ],
)  # fmt: skip
def test_trust_files_out_of_form_are_refused(trust: Trust, change: dict) -> None:
    value = json.loads(trust.encode()) | change
    with pytest.raises(TrustInvalid, match="not those of its keys" if "fingerprints" in change else None):
        read_trust(json.dumps(value).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"null", b'{"v":1}', b"[" * 100_000])
def test_junk_is_no_trust_file(data: bytes) -> None:
    with pytest.raises(TrustInvalid):
        read_trust(data)


def test_a_fingerprint_may_have_colons_and_not_another_length() -> None:
    assert "ab" * 32 == trust_of_fingerprint(":".join(["AB"] * 32)).fingerprint
    with pytest.raises(TrustInvalid):
        trust_of_fingerprint("ab")


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
        for history, why in ((changes, "replaced before"), (changes[:1], "not connected"), ([], "not vouch")):
            stolen[SIGNER] = SignerFile(verifier_of(old), history).encode()
            refused(sign_again(stolen, old), trust, "3", why)
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
