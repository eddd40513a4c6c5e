from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from keymgmt.derive import SAK_OCTETS, SaPair, associated_data, check_plan, derive_pair, ssci_of
from keymgmt.errors import DerivationRefused

A, B = "0200000000010001", "0200000000020001"
KEY = bytes(range(32))
PLAN = {"link": "cw-gcp-1", "rotation": "r-1", "cipher": "GCM-AES-XPN-256", "an": 2}


def pair(own: str = A, peer: str = B, key: bytes = KEY, **changes: object) -> SaPair:
    return derive_pair(key, own_sci=own, peer_sci=peer, **(PLAN | changes))  # type: ignore[arg-type]


def hkdf(ikm: bytes, info: bytes, octets: int) -> bytes:
    """RFC 5869 with an empty salt, written from the RFC."""
    prk = hmac.new(bytes(32), ikm, hashlib.sha256).digest()
    out, block = b"", b""
    for number in range(1, 3):
        block = hmac.new(prk, block + info + bytes([number]), hashlib.sha256).digest()
        out += block
    return out[:octets]


@pytest.mark.parametrize(("purpose", "octets"), [("sak", 32), ("salt", 12), ("key_id", 16), ("check", 16)])
def test_each_purpose_is_hkdf_over_canonical_info(purpose: str, octets: int) -> None:
    info = json.dumps(
        {
            "an": 2,
            "cipher": "GCM-AES-XPN-256",
            "link": "cw-gcp-1",
            "purpose": purpose,
            "rotation": "r-1",
            "ssci": 2,
            "tx_sci": A,
            "v": 1,
        },
        separators=(",", ":"),
    ).encode()
    expected = hkdf(KEY, info, octets)
    got = getattr(pair().tx, purpose)
    actual = got if isinstance(got, bytes) else bytes.fromhex(got)
    assert expected == actual


def test_one_ends_transmit_is_the_other_ends_receive() -> None:
    a, b = pair(), pair(B, A)
    assert a.tx == b.rx
    assert a.rx == b.tx
    assert a.tx != a.rx


def test_ssci_1_belongs_to_the_numerically_greater_sci() -> None:
    assert (2, 1) == (ssci_of(A, B), ssci_of(B, A))
    assert (2, 1) == (pair().tx.ssci, pair().rx.ssci)


@pytest.mark.parametrize("cipher", SAK_OCTETS)
def test_sak_length_follows_the_suite(cipher: str) -> None:
    assert SAK_OCTETS[cipher] == len(pair(cipher=cipher).tx.sak)


@pytest.mark.parametrize("change", [{"link": "x"}, {"rotation": "r-2"}, {"cipher": "GCM-AES-256"}, {"an": 3}])
def test_everything_that_names_a_rotation_changes_key_and_check(change: dict[str, object]) -> None:
    before, after = pair().tx, pair(**change).tx
    assert before.sak != after.sak
    assert before.check != after.check
    assert before.key_id != after.key_id


@pytest.mark.parametrize(
    ("own", "peer", "changes"),
    [
        (A, A, {}),
        ("02", B, {}),
        (A.upper().replace("0", "A"), B, {}),
        (A, B, {"cipher": "GCM-AES-512"}),
        (A, B, {"an": 4}),
        (A, B, {"key": bytes(16)}),
    ],
)
def test_unsound_input_is_refused(own: str, peer: str, changes: dict[str, object]) -> None:
    with pytest.raises(DerivationRefused):
        pair(own, peer, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tx", "rx", "ssci"), [(B, A, 1), (A, A, 2), (A, B, 1)], ids=["foreign tx", "own SCI as rx", "wrong SSCI"]
)
def test_a_plan_that_cannot_be_right_is_refused(tx: str, rx: str, ssci: int) -> None:
    with pytest.raises(DerivationRefused):
        check_plan(A, tx, rx, ssci)


def test_repr_shows_no_key() -> None:
    text = repr(pair())
    assert pair().tx.sak.hex() not in text
    assert repr(pair().tx.sak) not in text
    assert repr(pair().tx.salt) not in text
    assert pair().tx.key_id in text


def test_associated_data_is_canonical_and_bound_to_two_nonces() -> None:
    ad = {
        "link": "l",
        "rotation": "r",
        "cipher": "c",
        "an": 0,
        "scis": [A, B],
        "nonce_a": "1",
        "nonce_b": "2",
    }
    assert associated_data(ad) == json.dumps(ad, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(DerivationRefused):
        associated_data(ad | {"nonce_b": "1"})
    with pytest.raises(DerivationRefused):
        associated_data(ad | {"scis": [A, A]})
    with pytest.raises(DerivationRefused):
        associated_data({"link": "l"})
