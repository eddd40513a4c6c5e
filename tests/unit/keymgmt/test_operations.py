from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keymgmt.checks import decode_counters, encode_counters, is_u64
from keymgmt.endstate import EndpointState, SaState
from keymgmt.errors import MessageRefused
from keymgmt.operations import PARAMS, RESULTS, Ack, AckStatus, Operation, OpKind

SCI, ID = "0200000000010001", "ab" * 16
AD = {"link": "l", "rotation": "r", "cipher": "c", "an": 0, "scis": [SCI, SCI], "nonce_a": ID, "nonce_b": ID}
EXAMPLES: dict[OpKind, dict[str, Any]] = {
    OpKind.READ: {},
    OpKind.PREPARE: {"an": 3, "cipher": "GCM-AES-256", "tx_sci": SCI, "rx_sci": SCI, "ssci": 1},
    OpKind.INSTALL: {"an": 0, "cipher": "c", "ciphertext": "vault:v1:x", "key_version": 1, "ad": AD},
    OpKind.SELECT_TX: {"an": 0, "key_id": ID, "revert_after_ms": 1},
    OpKind.PROBE: {"an": 0, "count": 5, "probe_id": ID},
    OpKind.VERIFY: {"an": 0, "key_id": ID, "probe_id": ID},
    OpKind.CONFIRM: {"an": 0},
    OpKind.REVERT_TX: {"an": 0, "key_id": ID},
    OpKind.SAMPLE: {},
    OpKind.RETIRE_TX: {"an": 0, "key_id": ID},
    OpKind.RETIRE_RX: {"an": 0, "key_id": ID},
    OpKind.ABANDON: {"key_ids": {"tx": ID, "rx": ID}},
}


def operation(kind: OpKind = OpKind.READ, **changes: Any) -> dict[str, Any]:
    return {
        "op_id": "o1",
        "link": "l",
        "kind": str(kind),
        "token": 7,
        "holder": "c1",
        "op_seq": 12,
        "poll_nonce": ID,
        "time_to_act_ms": 1000,
        "rotation": None,
        "params": EXAMPLES[kind],
    } | changes


@pytest.mark.parametrize("kind", list(OpKind))
def test_every_kind_survives_its_coding(kind: OpKind) -> None:
    doc = operation(kind, rotation="r")
    assert doc == json.loads(json.dumps(Operation.from_json(doc).to_json()))


def test_every_kind_has_params_and_results() -> None:
    assert set(OpKind) == set(PARAMS) == set(RESULTS)


@pytest.mark.parametrize("kind", list(OpKind))
def test_an_unknown_or_missing_parameter_is_refused(kind: OpKind) -> None:
    with pytest.raises(MessageRefused, match="unknown field 'x'"):
        Operation.from_json(operation(kind, params=EXAMPLES[kind] | {"x": 1}))
    for name in EXAMPLES[kind]:
        with pytest.raises(MessageRefused, match=name):
            Operation.from_json(
                operation(kind, params={k: v for k, v in EXAMPLES[kind].items() if k != name})
            )


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "melt"},
        {"kind": ["read"]},
        {"token": True},
        {"token": -1},
        {"token": 2**53},
        {"token": 1.0},
        {"op_seq": "1"},
        {"poll_nonce": ID.upper()},
        {"rotation": ""},
        {"params": []},
        {"extra": 1},
    ],
)
def test_a_malformed_operation_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MessageRefused):
        Operation.from_json(operation() | change)


@pytest.mark.parametrize("doc", [None, [], "x", 1, {}])
def test_what_is_no_object_is_refused(doc: Any) -> None:
    for codec in (Operation, Ack, EndpointState):
        with pytest.raises(MessageRefused):
            codec.from_json(doc)


def test_a_refusal_names_the_field_and_not_its_value() -> None:
    with pytest.raises(MessageRefused) as refused:
        Operation.from_json(operation(OpKind.INSTALL, params=EXAMPLES[OpKind.INSTALL] | {"ciphertext": 5}))
    assert "ciphertext" in str(refused.value)
    assert "5" not in str(refused.value)
    ok = Operation.from_json(operation(OpKind.INSTALL))
    assert "vault:v1" not in repr(ok)


def test_an_ack_survives_its_coding_and_checks_its_result() -> None:
    ack = Ack("o1", 1, 2, AckStatus.DONE, "boot", {"nonce": ID})
    assert ack == Ack.from_json(ack.to_json())
    assert {"nonce": ID} == ack.check_result(OpKind.PREPARE)
    with pytest.raises(MessageRefused):
        ack.check_result(OpKind.CONFIRM)
    refused = Ack("o1", 1, 2, AckStatus.REFUSED, "boot", {}, {"code": "EBUSY", "detail": "in use"})
    assert refused == Ack.from_json(refused.to_json())
    with pytest.raises(MessageRefused):
        Ack.from_json(ack.to_json() | {"status": "maybe"})


U64 = st.integers(0, 2**64 - 1)


@given(st.dictionaries(st.text(max_size=20), U64, max_size=20))
def test_counters_survive_as_decimal_strings(counters: dict[str, int]) -> None:
    assert counters == decode_counters(json.loads(json.dumps(encode_counters(counters))))


@pytest.mark.parametrize("value", [1, "01", "-1", "+1", "1.0", "", " 1", str(2**64), "٣", None])
def test_a_counter_that_is_no_decimal_string_is_refused(value: Any) -> None:
    with pytest.raises(MessageRefused):
        decode_counters({"n": value})


@given(U64, U64, st.sampled_from([None, 0, 3]), st.booleans())
def test_an_endpoint_state_survives_its_coding(tx_pn: int, rx_pn: int, an: int | None, flag: bool) -> None:
    state = EndpointState(
        boot_id="b",
        secy_id="s",
        protect=flag,
        encrypt=True,
        validate="strict",
        tx_sci=SCI,
        encoding_an=an,
        tx=(SaState(3, ID, tx_pn, in_use=True),),
        rx_sci=SCI,
        rx=(SaState(0, ID, rx_pn, in_use=flag),),
        burnt=(ID,),
        path="closed",
        revert_pending=flag,
        counters={"txsc.OutPktsEncrypted": tx_pn},
        faults=("allowed",),
    )
    assert state == EndpointState.from_json(json.loads(json.dumps(state.to_json())))


@pytest.mark.parametrize("value", ["1" * 5000, "9" * 21, str(2**64), "-1", "01", "", "١", 1, None])
def test_what_is_no_64_bit_number_is_refused_and_never_an_error_of_its_own(value: object) -> None:
    """int() of some thousand digits raises; a peer must not choose which error we raise."""
    assert not is_u64(value)
    with pytest.raises(MessageRefused):
        decode_counters({"x": value})
