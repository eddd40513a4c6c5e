"""Vectors: IEEE 802.1AE-2018 Annex C (public: bn-randall-test-vectors-0511 at ieee802.org)."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from keymgmt.drivers.software_frames import (
    ReplayWindow,
    SaCipher,
    parse,
    protect,
    recover_pn,
    validate,
)
from keymgmt.errors import DriverRefused, FrameRefused

SCI = bytes.fromhex("12153524C0895E81")
PN = 0xB2C28465
K128 = bytes.fromhex("AD7A2BD03EAC835A6F620FDCB506B345")
K256 = bytes.fromhex("E3C08A8F06C6E3AD95A70557B23F75483CE33021A9C72B7025666204C69C0B72")
MACS = bytes.fromhex("D609B1F056637A0D46DF998D")
C1 = MACS + bytes.fromhex("0800") + bytes(range(0x0F, 0x35)) + b"\x00\x01"  # 54-octet frame, integrity
C2 = MACS + bytes.fromhex("0800") + bytes(range(0x0F, 0x3B)) + b"\x00\x02"  # 60-octet frame, confidentiality
SALT = bytes.fromhex("E630E81A48DE86A21C66FA6D")
SSCI, XPN = 0x7A30C118, 0xB0DF459CB2C28465


def sa(key: bytes, *, xpn: bool = False) -> SaCipher:
    suite = f"GCM-AES-{'XPN-' if xpn else ''}{len(key) * 8}"
    return SaCipher.make(suite, key, SALT, SCI, SSCI)


@pytest.mark.parametrize(
    ("key", "icv"),
    [(K128, "f09478a9b09007d06f46e9b6a1da25dd"), (K256, "2f0bc5af409e06d609ea8b7d0fa5ea50")],
    ids=["C.1.1 GCM-AES-128", "C.1.2 GCM-AES-256"],
)
def test_annex_c_integrity(key: bytes, icv: str) -> None:
    out = protect(C1, sa(key), 2, PN, encrypt=False)
    assert "88e5222ab2c2846512153524c0895e81" == out[12:28].hex()
    assert icv == out[-16:].hex()
    assert validate(out, parse(out), sa(key), PN) == C1


@pytest.mark.parametrize(
    ("key", "ends", "icv"),
    [
        (K128, ("701afa1c", "713d"), "4f8d55e7d3f06fd5a13c0c29b9d5b880"),
        (K256, ("e2006eb4", ""), "5ca597cdbb3edb8d1a1151ea0af7b436"),
    ],
    ids=["C.2.1 GCM-AES-128", "C.2.2 GCM-AES-256"],
)
def test_annex_c_confidentiality(key: bytes, ends: tuple[str, str], icv: str) -> None:
    out = protect(C2, sa(key), 2, PN, encrypt=True)
    assert "88e52e00b2c2846512153524c0895e81" == out[12:28].hex()
    assert out[28:-16].hex().startswith(ends[0])
    assert out[28:-16].hex().endswith(ends[1])
    assert icv == out[-16:].hex()
    assert validate(out, parse(out), sa(key), PN) == C2


@pytest.mark.parametrize("key", [K128, K256], ids=["XPN-128", "XPN-256"])
@pytest.mark.parametrize("encrypt", [True, False])
def test_xpn_equals_an_independent_construction(key: bytes, encrypt: bool) -> None:
    """14.7: IV = (SSCI || PN64) xor salt, the tag carries the lower 32 bits; written out with AES-GCM itself."""
    out = protect(C2, sa(key, xpn=True), 2, XPN, encrypt=encrypt)
    iv = bytes(x ^ y for x, y in zip(SSCI.to_bytes(4, "big") + XPN.to_bytes(8, "big"), SALT, strict=True))
    gcm = Cipher(algorithms.AES(key), modes.GCM(iv)).encryptor()
    head = MACS + bytes.fromhex(("88e52e00" if encrypt else "88e52200") + "b2c2846512153524c0895e81")
    gcm.authenticate_additional_data(head if encrypt else head + C2[12:])
    data = gcm.update(C2[12:] if encrypt else b"") + gcm.finalize()
    assert head + (data if encrypt else C2[12:]) + gcm.tag == out
    assert C2 == validate(out, parse(out), sa(key, xpn=True), XPN)


def test_xpn_iv_uses_the_upper_half() -> None:
    cipher = sa(K256, xpn=True)
    assert cipher.nonce(1) != cipher.nonce(1 + 2**32)


@given(
    st.binary(min_size=2, max_size=1500), st.sampled_from([1, 2**31, 2**32 - 1]), st.booleans(), st.booleans()
)
def test_what_is_protected_validates(data: bytes, pn: int, encrypt: bool, xpn: bool) -> None:
    cipher, frame = sa(K256, xpn=xpn), MACS + data
    out = protect(frame, cipher, 3, pn, encrypt=encrypt)
    tag = parse(out)
    assert (3, encrypt, pn) == (tag.an, tag.encrypted, tag.pn32)
    assert frame == validate(out, tag, cipher, pn)
    if len(out) < 60:
        padded = out.ljust(60, b"\0")  # Ethernet padding
        assert frame == validate(padded, parse(padded), cipher, pn)


@given(st.integers(0, 60 * 8 - 1))
def test_a_flipped_bit_is_never_accepted_with_the_same_content(bit: int) -> None:
    out = bytearray(protect(C2, sa(K128), 0, 7, encrypt=True))
    out[bit // 8] ^= 1 << bit % 8
    try:
        got = validate(bytes(out), tag := parse(bytes(out)), sa(K128), tag.pn32)
    except FrameRefused:
        return
    pytest.fail(f"accepted: {got.hex()}")


@pytest.mark.parametrize(
    ("at", "value"),
    [(14, 0xAE), (14, 0x6E), (14, 0x3E), (14, 0x0E), (14, 0x2A), (14, 0x26), (15, 48), (15, 47)],
    ids=["version 1", "ES", "SCB", "no SCI", "E without C", "C without E", "SL 48", "SL does not fit"],
)
def test_a_malformed_tag_is_refused(at: int, value: int) -> None:
    out = bytearray(protect(C2[:50], sa(K128), 2, PN, encrypt=True))
    out[at] = value
    with pytest.raises(FrameRefused):
        parse(bytes(out))


def test_a_wrong_key_length_is_refused() -> None:
    with pytest.raises(DriverRefused) as refused:
        SaCipher.make("GCM-AES-256", K128, b"", SCI, 0)
    assert "EINVAL" == refused.value.code
    assert K128.hex() not in repr(sa(K128))


@given(st.integers(1, 2**63), st.integers(-(2**20), 2**31 - 1))
def test_xpn_pn_is_recovered_up_to_half_the_space_ahead(lowest: int, ahead: int) -> None:
    """Every PN from the lowest acceptable one to 2**31 - 1 above it comes back from its lower 32 bits."""
    if ahead < 0:
        return
    pn = lowest + ahead
    assert pn == recover_pn(pn & 0xFFFFFFFF, lowest)


@pytest.mark.parametrize(
    ("pn32", "lowest", "expected"),
    [
        (5, 0xFFFFFFF0, 2**32 + 5),
        (0xFFFFFFF8, 0xFFFFFFF0, 0xFFFFFFF8),
        (0x80000000, 5, 0x80000000),
        (3, 5, 3),
    ],
)
def test_xpn_pn_recovery_at_the_edges(pn32: int, lowest: int, expected: int) -> None:
    assert expected == recover_pn(pn32, lowest)


class NaiveWindow:
    """10.6.2 in one line: late is what lies more than the window below the highest PN seen plus one."""

    def __init__(self, window: int) -> None:
        self.seen, self.window = [0], window

    def accepts(self, pn: int) -> bool:
        if pn < max(1, max(self.seen) + 1 - self.window):
            return False
        self.seen.append(pn)
        return True


@given(st.integers(0, 40), st.lists(st.integers(1, 120), max_size=200))
def test_replay_window_equals_the_naive_model(window: int, arrivals: list[int]) -> None:
    real, naive = ReplayWindow(window), NaiveWindow(window)
    for pn in arrivals:
        accepted = not real.late(pn)
        if accepted:
            real.update(pn)
        assert naive.accepts(pn) == accepted
