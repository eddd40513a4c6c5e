"""The second path, the script of 80 lines: it agrees with `verify`, and is fooled no more easily."""

from __future__ import annotations

import base64
import io
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from package_checks import MALLORY, second_path
from package_world import DAY, HOUR, T0, World, make, trust_of

from evidence import dsse
from evidence.canonical import canonical, decode_canonical
from evidence.checkpoint import Checkpoint, parse_checkpoint, parse_note, sign_checkpoint
from evidence.errors import PackageInvalid
from evidence.package.attacks import pack, sign_again, unpack
from evidence.package.build import Exported
from evidence.package.model import (
    CHECKPOINT,
    ENVELOPE,
    FIGURES,
    PAYLOAD_TYPE,
    README,
    SCRIPT,
    proofs_name,
    records_name,
)
from evidence.package.trust import Trust
from evidence.package.verify import VERIFIED, verify_octets
from evidence.records import part_digest


def test_the_second_path_agrees_on_a_scope_that_has_no_record_yet(tmp_path: Path) -> None:
    made = make(tmp_path, logs=False)
    try:
        made.ledger.ensure_scopes("idle")
        made.tick(T0 + DAY + 2 * HOUR)
        empty = made.export("idle")
        octets = empty.path.read_bytes()
        assert VERIFIED == verify_octets(octets, trust_of(empty)).text
        done = second_path(tmp_path, unpack(octets), octets, trust_of(empty))
        assert (0, True) == (done.returncode, "records 0 to 0" in done.stdout), done.stderr
    finally:
        made.db.stop()


def test_the_second_path_agrees(
    members: dict[str, bytes], octets: bytes, trust: Trust, tmp_path: Path, world: World, scope_id: str
) -> None:
    assert members[SCRIPT].rstrip() in members[README]
    assert len(members[SCRIPT].splitlines()) <= 80
    done = second_path(tmp_path, members, octets, trust)
    assert (0, True) == (done.returncode, "records 3 to 21" in done.stdout), done.stderr
    for torn in (octets[:-9], octets[: len(octets) // 2], b"", b"PK"):
        done = second_path(tmp_path, members, torn, trust)
        assert (1, 1, True) == (
            done.returncode, len(done.stderr.splitlines()), done.stderr.startswith("NOT VERIFIED: ")
        ), done.stderr  # fmt: skip
    alone = subprocess.run(
        [sys.executable, "-I", "v.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (1, True) == (alone.returncode, "python3 verify80.py PACKAGE.zip TRUST.json" in alone.stderr)
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

    for change in (
        {"predicateType": "https://example.org/other"}, {"_type": "x"}, {"subject": statement["subject"] * 2},
        {"subject": [{"name": "other.json", "digest": statement["subject"][0]["digest"]}]},
    ):  # fmt: skip
        run(
            members | {ENVELOPE: dsse.seal(PAYLOAD_TYPE, canonical(statement | change), world.signer)},
            "NOT VERIFIED",
        )


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


def deflated(_: bytes) -> bytes:
    """A bomb: a few octets that would unpack to 300 million."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as z, z.open("a", "w") as file:
        for _ in range(300):
            file.write(bytes(1_000_000))
    return raw.getvalue()


def overlapping(octets: bytes) -> bytes:
    """Many names for the same octets: as many copies in memory."""
    at = eocd(octets)
    n, _, size, offset = struct.unpack_from("<HHII", octets, at + 8)
    entry = octets[offset : octets.index(b"PK\x01\x02", offset + 4)]
    more = b"".join(entry[:46] + b"%09d" % i + entry[55:] for i in range(2_000))
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, n + 2_000, n + 2_000, size + len(more), offset, 0)
    return octets[:at] + more + end


TRICKS: dict[str, Callable[[bytes], bytes]] = {
    "octets before": lambda o: b"#!/bin/sh\n" + o,
    "another archive before": lambda o: o + o,
    "octets behind": lambda o: o + b"\x00",
    "a comment": comment,
    "an entry twice": more_entries,
    "a bomb": deflated,
    "overlapping entries": overlapping,
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


@pytest.mark.parametrize("trick", ["a bomb", "overlapping entries"])
def test_the_script_takes_no_more_memory_than_the_file_has_octets(
    exported: Exported, members: dict[str, bytes], trust: Trust, tmp_path: Path, trick: str
) -> None:
    done = second_path(tmp_path, members, TRICKS[trick](exported.path.read_bytes()), trust)
    assert "NOT VERIFIED: container: stored members" == done.stderr.strip()
