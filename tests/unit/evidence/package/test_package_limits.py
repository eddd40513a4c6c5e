"""Bounds of a package: what is larger than any package of ours is refused before it is worked on."""

from __future__ import annotations

import pytest

from evidence.errors import ExportRefused, PackageInvalid
from evidence.limits import LIMITS
from evidence.package import container
from evidence.package.attacks import pack
from evidence.package.members import lines, member


def test_a_json_member_is_bounded() -> None:
    data = memoryview(bytes(LIMITS.package_json + 1))
    assert LIMITS.package_json == len(member({"a": data[1:]}, "6", "a"))
    with pytest.raises(PackageInvalid, match="larger than"):
        member({"a": data}, "6", "a")


def test_a_line_is_bounded_and_every_line_has_an_end() -> None:
    good = bytes(LIMITS.package_line) + b"\n"
    assert [good[:-1]] == list(lines({"a": memoryview(good)}, "a"))
    for evil in (b"\x00" + good, b"{}\nno end"):
        with pytest.raises(PackageInvalid, match="cut off or too long") as caught:
            list(lines({"a": memoryview(evil)}, "a"))
        assert caught.value.record == f"line {1 + evil.count(b'{}')}"


def test_the_number_of_members_is_bounded() -> None:
    names = [f"m{n:05}" for n in range(LIMITS.package_members + 1)]
    octets = pack(dict.fromkeys(names[:-1], b""))
    assert LIMITS.package_members == len(container.read(octets, "2", "p"))
    with pytest.raises(ExportRefused, match="out of bounds"):
        pack(dict.fromkeys(names, b""))
    one = pack({names[-1]: b""})
    more = octets[: octets.index(b"PK\x01\x02")] + one[: one.index(b"PK\x01\x02")]
    with pytest.raises(PackageInvalid, match="too many"):
        container.read(more, "2", "p")
