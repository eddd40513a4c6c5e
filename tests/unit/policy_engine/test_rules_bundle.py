"""The bundle and its container: equal bytes when packed, nothing believed when read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules_world import CONTAINER, shipped

from policy_engine.errors import BundleRefused
from policy_engine.limits import LIMITS
from policy_engine.rules import archive, bundle, trust
from policy_engine.rules.engine import Violation

RAW = CONTAINER.read_bytes()
NAMES = st.from_regex(r"[a-z]{1,8}(/[a-z.]{1,8}x)?", fullmatch=True)


def test_the_shipped_bundle_is_the_trusted_one():
    trusted = trust.in_the_wheel()
    assert hashlib.sha256(RAW).hexdigest() == trusted.bundle_digest == shipped().bundle_digest
    assert (trusted.policy_digest, trusted.version) == (shipped().policy_digest, shipped().version)
    assert shipped().wasm.startswith(b"\0asm")


def test_other_readers_can_open_it():
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(RAW))) as tar:
        assert "policy.wasm" in tar.getnames()


@given(st.dictionaries(NAMES, st.binary(max_size=300), max_size=6))
def test_packing_is_a_function_of_the_content(files):
    if any(a != b and b.startswith(a + "/") for a in files for b in files):
        return
    packed = archive.pack(files)
    assert packed == archive.pack(dict(reversed(list(files.items()))))
    assert files == archive.unpack(packed)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 131_070, 200_000])
def test_stored_blocks_of_every_length(size):
    assert {"a": b"x" * size} == archive.unpack(archive.pack({"a": b"x" * size}))


def tar_of(*members, fmt=tarfile.PAX_FORMAT):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=fmt) as tar:
        for entry, content in members:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def entry(name, kind=tarfile.REGTYPE, link=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "member",
    [
        entry("/etc/passwd"),
        entry("../up"),
        entry("a/../../up"),
        entry("./a"),
        entry("a//b"),
        entry("a\\b"),
        entry("a\x01b"),
        entry("\u00e4"),
        entry("link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("hard", tarfile.LNKTYPE, "a"),
        entry("dir", tarfile.DIRTYPE),
        entry("fifo", tarfile.FIFOTYPE),
        entry("dev", tarfile.CHRTYPE),
    ],
    ids=lambda made: f"{made.name!r}-{made.type!r}",
)
def test_only_plain_files_with_plain_names(member):
    with pytest.raises(BundleRefused):
        archive.unpack(tar_of((entry("a"), b"1"), (member, b"")))


def test_a_repeated_name_is_refused():
    with pytest.raises(BundleRefused, match="repeated"):
        archive.unpack(tar_of((entry("a"), b"1"), (entry("a"), b"2")))


def test_too_many_files_are_refused():
    with pytest.raises(BundleRefused, match="more than 3"):
        archive.unpack(archive.pack({name: b"" for name in "abcd"}), replace(LIMITS, bundle_members=3))


def test_a_bomb_is_not_inflated():
    bomb = gzip.compress(b"\0" * 64 * 1_048_576, mtime=0)
    with pytest.raises(BundleRefused, match="beyond the limit"):
        archive.unpack(bomb)


def test_a_large_container_is_refused():
    with pytest.raises(BundleRefused, match="larger than"):
        archive.unpack(RAW, replace(LIMITS, bundle_bytes=1_000))


@pytest.mark.parametrize("cut", [0, 1, 9, 10, 100, len(RAW) // 2, len(RAW) - 9, len(RAW) - 1])
def test_a_cut_container_is_refused(cut):
    with pytest.raises(BundleRefused):
        archive.unpack(RAW[:cut])


def test_bytes_behind_the_container_are_refused():
    for tail in (b"x", RAW, b"\0" * 512):
        with pytest.raises(BundleRefused):
            archive.unpack(RAW + tail)


@given(st.binary(max_size=400))
def test_noise_is_refused(noise):
    with pytest.raises(BundleRefused):
        archive.unpack(noise)


@given(st.integers(0, len(RAW) * 8 - 1))
def test_one_flipped_bit_is_refused(bit):
    flipped = bytearray(RAW)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BundleRefused, match="not the trusted one"):
        bundle.load(bytes(flipped), trust.in_the_wheel())


def again(change):
    """A container that was changed and packed anew, trusted by its new digest."""
    members = archive.unpack(RAW)
    change(members)
    packed = archive.pack(members)
    return packed, replace(trust.in_the_wheel(), bundle_digest=hashlib.sha256(packed).hexdigest())


def manifest(**changes):
    def change(members):
        whole = json.loads(members[".manifest"])
        whole["metadata"].update(changes)
        members[".manifest"] = json.dumps(whole).encode()

    return change


def source(members):
    members["residency/residency.rego"] += b"# one more line\n"


def added(members):
    members["extra/extra.rego"] = b"package extra\n"


def lost(members):
    del members["tenancy/tenancy.rego"]


def loosened(members):
    members["capabilities.json"] += b" "


def constant(members):
    members[bundle.GENERATED] = bundle.constant("0" * 64)


@pytest.mark.parametrize("change", [source, added, lost, loosened, constant])
def test_sources_that_the_policy_digest_does_not_name_are_refused(change):
    with pytest.raises(BundleRefused, match="sources"):
        bundle.load(*again(change))


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.pop(".manifest"),
        lambda members: members.update({".manifest": b"{bad"}),
        lambda members: members.update({".manifest": b"[]"}),
        lambda members: members.update({".manifest": b"{}"}),
        manifest(policy_digest=7),
        manifest(policy_digest="0"),
        manifest(version="1"),
        manifest(rules=[]),
        manifest(rules={"a.b": {}}),
        manifest(rules={"a.b": 1}),
        manifest(version=99),
    ],
)
def test_a_manifest_that_is_not_whole_is_refused(change):
    with pytest.raises(BundleRefused):
        bundle.load(*again(change))


def test_the_trusted_version_and_policy_must_match():
    trusted = trust.in_the_wheel()
    for other in (replace(trusted, version=trusted.version + 1), replace(trusted, policy_digest="0" * 64)):
        with pytest.raises(BundleRefused):
            bundle.load(RAW, other)


def test_a_violations_identity_is_rule_subject_and_params():
    one = Violation("a.b", "s", "p", {"x": 1, "y": [2]})
    assert one.key == Violation("a.b", "s", "elsewhere", {"y": [2], "x": 1}).key
    assert one.key != Violation("a.b", "s", "p", {"x": 1, "y": [3]}).key
