"""The wire format: what is a review, and what an answer looks like to the API server."""

import json
import time

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
    assert (info.value.status, info.value.uid) == (400, "")
    assert "tail" not in str(info.value)


@pytest.mark.parametrize(
    "raw",
    [
        body() + b" x",
        body()[:-1],
        body().replace(b"AdmissionReview", b"Pod"),
        body(name="LONE").replace(b"LONE", b"\\ud800"),
        body(name="DEEP").replace(b'"DEEP"', b"[" * 100_000 + b"]" * 100_000),
        body(name="NAN").replace(b'"NAN"', b"NaN"),
        body(name="BYTES").replace(b"BYTES", b"\xff"),
        b" \n" + body().replace(b":", b" : ").replace(b",", b" , ") + b"}",
    ],
    ids=["garbage after", "truncated", "other kind", "surrogate", "deep", "NaN", "not UTF-8", "spaces"],
)
def test_the_uid_comes_back_from_where_the_octets_show_it(raw: bytes) -> None:
    with pytest.raises(BadReview) as info:
        protocol.parse(raw)
    assert (info.value.status, info.value.uid) == (400, UID)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (b"1e999", "a number that is out of range"),
        (b"-1e999", "a number that is out of range"),
        (b"NaN", "not JSON in UTF-8"),
        (b'"\xff"', "not JSON in UTF-8"),
    ],
)
def test_good_json_with_a_number_that_is_none_is_not_called_bad_json(written: bytes, why: str) -> None:
    with pytest.raises(BadReview, match=why) as info:
        protocol.parse(body(name="NUMBER").replace(b'"NUMBER"', written))
    assert (info.value.status, info.value.uid) == (400, UID)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"request":{"uid":"a\\u0062"}} x',
        b'{"request":{"name":"x","uid":"u"}} x',
        b'{"object":{"request":{"uid":"u"}}} x',
        b'{"kind":"{\\"request\\":{\\"uid\\":\\"u\\"","x":1',
        b'[{"request":{"uid":"u"}}',
        b'{"request":{"uid":"' + b"u" * 300 + b'"}} x',
        b'{"request":{"uid":"u',
        b" " * 2000 + b'{"request":{"uid":"u"}} x',
    ],
)
def test_no_uid_is_guessed(raw: bytes) -> None:
    assert protocol.uid_at_begin(raw) == ""


@pytest.mark.parametrize(
    "raw", [b"{" + b'"a":"b",' * 200_000, b" " * 2_000_000, b'{"a":"' + b"b" * 2_000_000]
)
def test_looking_for_a_uid_is_bounded(raw: bytes) -> None:
    before = time.perf_counter()
    assert protocol.uid_at_begin(raw) == ""
    assert time.perf_counter() - before < 0.05


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (400, "BadRequest"),
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (405, "MethodNotAllowed"),
        (413, "RequestEntityTooLarge"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
def test_reasons_are_those_of_kubernetes(code: int, reason: str) -> None:
    assert json.loads(protocol.answer("", False, code=code))["response"]["status"]["reason"] == reason


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
