"""The wire format: what is a review, and what an answer looks like to the API server."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_engine.admission import protocol
from policy_engine.errors import BadReview

UID = "0df28fbd-5f5f-11e8-bc74-36e6bb280816"


def body(**request: object) -> bytes:
    request = {
        "uid": UID,
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        **request,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def test_duplicate_keys_the_last_wins_as_in_the_api_server() -> None:
    raw = body().replace(b'"operation": "CREATE"', b'"operation": "CREATE", "operation": "DELETE"')
    assert protocol.parse(raw).operation == "DELETE"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": "\\ud800 tail"}',
        b'{"a": "\\udc00\\ud800"}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": 1e999}',
        body() + b" x",
        body().replace(b"AdmissionReview", b"Pod"),
        body().replace(UID.encode(), b""),
        body().replace(b'"uid"', b'"uidd"'),
        body(uid=7),
        body(uid="x" * 300),
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": []}',
    ],
)
def test_what_is_no_review_is_refused_without_quoting_it(raw: bytes) -> None:
    with pytest.raises(BadReview) as info:
        protocol.parse(raw)
    assert (info.value.code, info.value.uid) == (400, "")
    assert "tail" not in str(info.value)


def test_another_version_is_refused_with_the_uid() -> None:
    with pytest.raises(BadReview) as info:
        protocol.parse(body().replace(b"k8s.io/v1", b"k8s.io/v1beta1"))
    assert info.value.uid == UID


@pytest.mark.parametrize("field", ["operation", "namespace", "subResource", "kind"])
@pytest.mark.parametrize("value", [None, 7, [], {}, "nonsense"])
def test_fields_of_the_wrong_type_leave_a_review_that_can_be_answered(field: str, value: object) -> None:
    assert protocol.parse(body(**{field: value})).uid == UID


def test_an_answer_has_the_form_of_admission_v1() -> None:
    notes = protocol.annotations(UID, "ab" * 16, "cd" * 32, "ef" * 32)
    raw = protocol.answer(UID, False, code=403, message='no "quotes"\n', warnings=["w"], annotations=notes)
    assert json.loads(raw) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": UID,
            "allowed": False,
            "status": {"status": "Failure", "code": 403, "reason": "Forbidden", "message": 'no "quotes"\n'},
            "warnings": ["w"],
            "auditAnnotations": {
                "decision.0df28fbd": "ab" * 16,
                "leaf.0df28fbd": "ef" * 32,
                "policy_digest.0df28fbd": "cd" * 32,
            },
        },
    }
    assert json.loads(protocol.answer(UID, True))["response"] == {"uid": UID, "allowed": True}


@given(st.text(min_size=1, max_size=50))
def test_annotation_keys_are_qualified_names_whatever_the_uid(uid: str) -> None:
    suffix = protocol.annotation_suffix(uid)
    assert 0 < len(suffix) <= 8
    assert suffix.isascii()
    assert suffix.isalnum()


@given(st.text(max_size=60))
def test_any_uid_comes_back_unchanged(uid: str) -> None:
    try:
        raw = protocol.answer(uid, True)
    except UnicodeEncodeError:
        assert any("\ud800" <= char <= "\udfff" for char in uid)
    else:
        assert json.loads(raw)["response"]["uid"] == uid


@given(st.lists(st.text(max_size=600), max_size=40))
def test_warnings_stay_within_the_limits_of_the_api_server(texts: list[str]) -> None:
    cut = protocol.cut_warnings(texts)
    assert all(len(text) <= 256 and text.isprintable() for text in cut)
    assert sum(map(len, cut)) <= 4_096
    assert len(cut) <= len(texts)
