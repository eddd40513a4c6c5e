"""Flipped bits: exhaustively where a signature covers them, at random elsewhere."""

from __future__ import annotations

import random

import pytest
from package_world import World

from evidence.errors import PackageInvalid
from evidence.package.attacks import flip, pack, sign_again
from evidence.package.model import CHECKPOINT, ENVELOPE, MANIFEST, SIGNER
from evidence.package.trust import Trust
from evidence.package.verify import _verify, verify_octets


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
