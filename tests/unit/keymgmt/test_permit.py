from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gate_rig import Gate
from hypothesis import given
from hypothesis import strategies as st

from evidence.canonical import canonical
from evidence.dsse import envelope, pae
from keymgmt.errors import MessageRefused, PermitRefused
from keymgmt.permit import (
    PERMIT_TYPE,
    Expected,
    Permit,
    PermitKind,
    SignerStatement,
    certify,
    issue,
    verify,
)


def expected(gate: Gate, **changes: Any) -> Expected:
    fields: dict[str, Any] = {
        "roots": gate.roots,
        "link": "cw-gcp-1",
        "endpoint": "a",
        "boot_id": "boot",
        "secy_id": "secy",
        "nonce": "00" * 16,
        "last_order": (1, 0),
        "violation_generation": 0,
        "now_ns": gate.not_after_ns - 1,
    }
    return Expected(**(fields | changes))


@pytest.mark.parametrize("kind", list(PermitKind))
def test_an_order_signed_under_a_pinned_root_is_accepted(kind: PermitKind) -> None:
    gate = Gate()
    permit = gate.permit(kind, reason="because", hard_not_after_ms=5)
    assert permit == verify(gate.answer(permit), expected(gate))


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another link": ({"link": "gcp-aws-1"}, {}),
    "another endpoint": ({"endpoint": "b"}, {}),
    "an order not above the last": ({}, {"last_order": (1, 1)}),
    "an order of an older epoch": ({}, {"last_order": (2, 0)}),
    "another nonce": ({"nonce": "11" * 16}, {}),
    "no pull outstanding": ({}, {"nonce": None}),
    "another boot": ({"boot_id": "reboot"}, {}),
    "another SecY lifetime": ({"secy_id": "restarted"}, {}),
    "a violation that came later": ({}, {"violation_generation": 1}),
    "a permit without arm": ({"arm_ms": 0}, {}),
    "a permit without ttl": ({"ttl_ms": 0}, {}),
    "another signer in the payload": ({"signer": "ff" * 16}, {}),
    "another epoch than the signer's": ({"epoch": 2}, {}),
}


@pytest.mark.parametrize(("permit", "ours"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(permit: dict[str, Any], ours: dict[str, Any]) -> None:
    gate = Gate()
    with pytest.raises(PermitRefused):
        verify(gate.answer(gate.permit(**permit)), expected(gate, **ours))


def test_a_close_needs_no_nonce_and_no_boot() -> None:
    gate = Gate()
    close = gate.permit(PermitKind.CLOSE, nonce="22" * 16, boot_id="other", secy_id="other")
    ours = expected(gate, nonce=None, violation_generation=7)
    assert PermitKind.CLOSE is verify(gate.answer(close), ours).kind


def test_a_signer_whose_statement_has_ended_is_refused() -> None:
    gate = Gate()
    with pytest.raises(PermitRefused, match="ended"):
        verify(gate.answer(gate.permit()), expected(gate, now_ns=gate.not_after_ns))


def test_a_root_that_is_not_pinned_is_refused() -> None:
    gate, stranger = Gate(), Gate()
    with pytest.raises(PermitRefused, match="^signer: .* another key than the one accepted"):
        verify(stranger.answer(stranger.permit()), expected(gate))


def test_a_statement_that_names_another_key_is_refused() -> None:
    gate = Gate()
    certified = gate.statement
    gate.key = Ed25519PrivateKey.generate()
    permit = gate.permit()
    doc = json.loads(gate.answer(permit)) | {"statement": certified}
    with pytest.raises(PermitRefused):
        verify(json.dumps(doc).encode(), expected(gate))


def test_a_statement_whose_key_id_is_not_its_keys_is_refused() -> None:
    gate = Gate()
    public = gate.raw(gate.key)
    wrong = SignerStatement("ff" * 16, public, gate.epoch, gate.not_after_ns)
    statement = certify(wrong, next(iter(gate.roots)), gate.root.sign)
    answer = issue(gate.permit(signer="ff" * 16), statement, gate.key.sign)
    with pytest.raises(PermitRefused, match="its key id is not its key's"):
        verify(answer, expected(gate))


def test_a_payload_that_names_another_signer_than_its_envelope_is_refused() -> None:
    gate = Gate()
    payload = gate.permit(signer="ff" * 16).payload()
    signed = envelope(PERMIT_TYPE, payload, gate.permit().signer, gate.key.sign(pae(PERMIT_TYPE, payload)))
    with pytest.raises(PermitRefused, match="the payload names another key"):
        verify(canonical({"envelope": signed, "statement": gate.statement}), expected(gate))


@pytest.mark.parametrize("part", ["envelope", "statement"])
@given(st.data())
def test_a_changed_octet_of_a_payload_is_refused(part: str, data: st.DataObject) -> None:
    gate = Gate()
    doc = json.loads(gate.answer(gate.permit()))
    payload = bytearray(base64.b64decode(doc[part]["payload"]))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    doc[part]["payload"] = base64.b64encode(payload).decode()
    with pytest.raises(PermitRefused):
        verify(json.dumps(doc).encode(), expected(gate))


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b"{" * 100_000, b"\xff", b"x" * 70_000])
def test_what_is_no_answer_is_malformed(answer: bytes) -> None:
    with pytest.raises(MessageRefused):
        verify(answer, expected(Gate()))


def test_two_signatures_or_another_type_are_refused() -> None:
    gate = Gate()
    doc = json.loads(gate.answer(gate.permit()))
    doubled = doc["envelope"] | {"signatures": doc["envelope"]["signatures"] * 2}
    retyped = doc["envelope"] | {"payloadType": doc["statement"]["payloadType"]}
    for bad in (doubled, retyped, doc["statement"], {}):
        with pytest.raises(PermitRefused):
            verify(json.dumps(doc | {"envelope": bad}).encode(), expected(gate))


def test_a_payload_with_another_field_is_malformed() -> None:
    permit = Gate().permit()
    doc = json.loads(permit.payload())
    with pytest.raises(MessageRefused, match="unknown field"):
        Permit.from_payload(json.dumps(doc | {"extra": 1}).encode())
    with pytest.raises(MessageRefused, match="ttl_ms"):
        Permit.from_payload(json.dumps(doc | {"ttl_ms": -1}).encode())
    assert replace(permit) == Permit.from_payload(permit.payload())


def stray(text: str) -> str:
    """Another spelling of the same octets: the unused bits of the last digit set."""
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    at = len(text.rstrip("=")) - 1
    assert text.endswith("=")
    return text[:at] + digits[digits.index(text[at]) | 1] + text[at + 1 :]


@pytest.mark.parametrize("change", [stray, lambda t: t.rstrip("="), lambda t: t + "\n", lambda t: " " + t])
def test_base64_has_one_spelling(change: Any) -> None:
    gate = Gate()
    doc = json.loads(gate.answer(gate.permit()))
    signature = doc["envelope"]["signatures"][0]
    assert change(signature["sig"]) != signature["sig"]
    signature["sig"] = change(signature["sig"])
    with pytest.raises(PermitRefused, match="does not decode strictly"):
        verify(json.dumps(doc).encode(), expected(gate))


def test_a_name_that_stands_twice_is_malformed() -> None:
    gate = Gate()
    answer = gate.answer(gate.permit())
    twice = answer[:-1] + b',"statement":' + json.dumps(gate.statement).encode() + b"}"
    with pytest.raises(MessageRefused, match="twice"):
        verify(twice, expected(gate))


def test_a_signed_payload_in_another_spelling_is_malformed() -> None:
    """Canonical or nothing: two readers of one signature must never see two permits."""
    permit = Gate().permit()
    payload = permit.payload()
    for other in (
        payload.replace(b'"seq":1', b'"seq":9,"seq":1'),
        payload.replace(b",", b", ", 1),
        payload + b"\n",
        payload.replace(b'"reason":""', b'"reason":"\\u0061"'),
    ):
        assert other != payload
        with pytest.raises(MessageRefused):
            Permit.from_payload(other)


@pytest.mark.parametrize("change", [{"extra": 1}, {"keyid": None}, {"sig": None}, {"sig": 5}])
def test_a_signature_of_another_form_is_refused(change: dict[str, Any]) -> None:
    gate = Gate()
    doc = json.loads(gate.answer(gate.permit()))
    doc["envelope"]["signatures"][0] |= change
    with pytest.raises(PermitRefused):
        verify(json.dumps(doc).encode(), expected(gate))
