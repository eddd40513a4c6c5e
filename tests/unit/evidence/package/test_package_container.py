"""The container: one encoding for given members; every bit of it counts; hostile zips are refused."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.errors import ExportRefused, PackageInvalid
from evidence.package import container
from evidence.package.attacks import flip, pack

MEMBERS = {"a.json": b"{}", "b/c.txt": b"content of some length", "empty": b""}
OCTETS = pack(MEMBERS)


def read(octets: bytes) -> dict[str, bytes]:
    return {n: bytes(d) for n, d in container.read(octets, "2", "p.zip").items()}


def test_it_is_a_plain_zip_that_others_read() -> None:
    with zipfile.ZipFile(io.BytesIO(OCTETS)) as z:
        assert None is z.testzip()
        assert MEMBERS == {n: z.read(n) for n in z.namelist()}
        assert {0} == {i.compress_type for i in z.infolist()}


@given(
    st.dictionaries(
        st.from_regex(r"(d[0-3]/)?f[a-z0-9]{1,7}", fullmatch=True), st.binary(max_size=60), max_size=6
    )
)
def test_members_come_back_and_order_does_not_matter(members: dict[str, bytes]) -> None:
    octets = pack(members)
    assert members == read(octets)
    assert octets == pack(dict(reversed(list(members.items()))))


def test_every_single_bit_flip_is_refused() -> None:
    for bit in range(len(OCTETS) * 8):
        with pytest.raises(PackageInvalid):
            read(flip(OCTETS, bit))


def test_every_cut_is_refused() -> None:
    for cut in range(len(OCTETS)):
        with pytest.raises(PackageInvalid):
            read(OCTETS[:cut])


@pytest.mark.parametrize("more", [b"\x00", b"PK\x05\x06" + b"\x00" * 18, OCTETS])
def test_trailing_and_leading_octets_are_refused(more: bytes) -> None:
    for octets in (OCTETS + more, more + OCTETS):
        with pytest.raises(PackageInvalid):
            read(octets)


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../b", "a//b", ".x", "a/.x", "c:x", "a\\b", "", "x" * 129, "é", "a\x00b"]
)
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ExportRefused):
        pack({name: b""})
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as z:
        z.writestr(name or "placeholder/", b"x")
    with pytest.raises(PackageInvalid):
        read(raw.getvalue())


def test_a_zip_bomb_is_refused_unopened() -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a", b"\x00" * 50_000_000)
    assert len(raw.getvalue()) < 100_000
    with pytest.raises(PackageInvalid, match="stored plainly"):
        read(raw.getvalue())


def test_a_size_that_lies_is_refused() -> None:
    octets = bytearray(OCTETS)
    struct.pack_into("<II", octets, 18, 0xFFFFFFF0, 0xFFFFFFF0)
    with pytest.raises(PackageInvalid, match="cut off"):
        read(bytes(octets))


def test_two_members_of_one_name_are_refused() -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as z:
        z.writestr("a.json", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            z.writestr("a.json", b"2")
    with pytest.raises(PackageInvalid):
        read(raw.getvalue())
    local = OCTETS[: OCTETS.index(b"PK\x03\x04", 4)]
    with pytest.raises(PackageInvalid, match="repeat"):
        read(local + OCTETS)


def test_an_empty_file_and_a_foreign_zip_are_refused() -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as z:
        z.writestr("a.json", b"{}")
    for octets in (b"", b"PK", raw.getvalue()):
        with pytest.raises(PackageInvalid):
            read(octets)


@pytest.mark.parametrize(
    "names",
    [("A.txt", "a.txt"), ("a", "a/b"), ("a.",), ("../a",), ("/a",), ("a//b",), ("ä",), ("con:",), ("a\\b",)],
)
def test_names_that_unpack_over_each_other_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises((ExportRefused, PackageInvalid)):
        container.read(b"".join(container.write(dict.fromkeys(names, b"x"))), "2", "p")
