"""Redaction: canaries under secret names, inside texts, exceptions and nested structures never come out."""

from __future__ import annotations

import json
import logging

import pytest

from evidence import logs

HEX = "c0ffee" * 10 + "c0de"
CANARIES = {
    "hvs": "hvs.CAESICanaryCanaryCanary_-123",
    "batch": "b.AAAAAQCanaryCanaryCanaryCanary",
    "service": "s.CanaryCanaryCanaryCanary",
    "ciphertext": "vault:v3:CanaryCanary+/0123456789==",
    "pem": "-----BEGIN EC PRIVATE KEY-----\nMHcCanary\nCanary\n-----END EC PRIVATE KEY-----",
    "pem cut off": "-----BEGIN PRIVATE KEY-----\nMHcCanaryCanary",
    "jwt": "eyJhbGciOiJCanary.eyJzdWIiOiJCanary.Canary-sig",
    "bearer": "Authorization: Bearer Canary.Canary.Canary",
    "key": f"key={HEX}",
    "quoted key": f"{{'key': '{HEX}'}}",
    "token": "token=CanaryCanary",
    "path": "https://host/admit?token=CanaryCanary&x=1",
    "password": 'password: "CanaryCanary"',
    "unseal": "unseal_key=CanaryCanary",
    "azure": "sig=Canary%2BCanaryCanaryCanaryCanaryCanaryCanaryCanary%3D",
}


def leaks(text: str) -> bool:
    return "anary" in text or "c0ffee" in text


@pytest.fixture
def lines(capsys):
    """Configure as a component does; return what was written, parsed."""
    root = logging.getLogger()
    handlers, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    logs.configure("test")

    def read() -> tuple[str, list[dict]]:
        written = capsys.readouterr().err
        return written, [json.loads(line) for line in written.splitlines()]

    yield read
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions = raising


@pytest.mark.parametrize("name", CANARIES)
def test_texts_that_look_like_secrets_are_taken_out(name, lines):
    log = logs.get_logger("t")
    log.info(
        f"before {CANARIES[name]} after", detail=CANARIES[name], nested={"a": [{"b": (CANARIES[name],)}]}
    )
    written, (line,) = lines()
    assert not leaks(written)
    assert "before" in line["event"]


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "secret",
        "secret_id",
        "secretId",
        "key",
        "sak",
        "SAK",
        "cak",
        "salt",
        "tx_salt",
        "password",
        "authorization",
        "Authorization",
        "ciphertext",
        "unseal_keys",
        "client_token",
        "private_key",
        "hkdf_ikm",
        "keys",
        "X-Vault-Token",
        "apiKey",
    ],
)
def test_values_under_secret_names_are_taken_out_at_any_depth(key, lines):
    logs.get_logger("t").warning("x", **{key: "Canary"}, nested={"deep": [{key: {"inner": ["Canary"]}}]})
    written, _ = lines()
    assert not leaks(written)


@pytest.mark.parametrize(
    "key",
    ["key_id", "key_ids", "key_version", "token_ttl", "keyName", "salt_count", "policy_digest", "key_digest"],
)
def test_names_of_secrets_may_be_shown(key, lines):
    logs.get_logger("t").info("x", **{key: "visible"})
    _, (line,) = lines()
    assert line[key] == "visible"


def test_a_fencing_token_is_a_number_and_shown_but_wide_numbers_are_not(lines):
    logs.get_logger("t").info("x", token=17, wide=int(HEX, 16), nothing=None, yes=True, share=0.5)
    _, (line,) = lines()
    assert (17, logs.REDACTED, None, True, 0.5) == (
        line["token"],
        line["wide"],
        line["nothing"],
        line["yes"],
        line["share"],
    )


def test_octets_are_never_shown(lines):
    logs.get_logger("t").info("x", data=b"Canary", view=memoryview(b"Canary"), listed=[bytearray(b"Canary")])
    written, (line,) = lines()
    assert not leaks(written)
    assert line["data"] == "[6 octets]"


def test_exception_texts_and_their_causes_are_redacted(lines):
    log = logs.get_logger("t")
    try:
        try:
            raise ValueError(CANARIES["hvs"])
        except ValueError as error:
            raise RuntimeError(f"failed with {CANARIES['key']}") from error
    except RuntimeError as error:
        log.exception("failed", error=error, errors=[error])
    written, (line,) = lines()
    assert not leaks(written)
    assert "RuntimeError" in line["exception"]
    assert "ValueError" in line["exception"]


def test_what_libraries_log_is_redacted(lines):
    other = logging.getLogger("some.library")
    try:
        raise OSError(CANARIES["bearer"])
    except OSError:
        other.exception("request to %s failed", f"http://h/?{CANARIES['token']}", stack_info=True)
    written, (line,) = lines()
    assert not leaks(written)
    assert ("some.library", "test", "error") == (line["logger"], line["component"], line["level"])


def test_objects_are_shown_as_redacted_text(lines):
    class Thing:
        def __str__(self) -> str:
            return CANARIES["hvs"]

    logs.get_logger("t").info("x", thing=Thing(), keyed={Thing(): 1, CANARIES["hvs"]: 2}, members={Thing()})
    written, _ = lines()
    assert not leaks(written)


def test_cycles_depth_and_lone_surrogates_do_not_break_a_line(lines):
    cycle: dict = {}
    cycle["self"] = cycle
    logs.get_logger("t").info("x", cycle=cycle, odd="\ud800")
    _, (line,) = lines()
    assert line["event"] == "x"


def test_levels_and_bound_values(lines):
    log = logs.get_logger("t").bind(link="cw-gcp-1")
    log.debug("hidden")
    log.info("shown")
    _, (line,) = lines()
    assert ("shown", "cw-gcp-1", "info") == (line["event"], line["link"], line["level"])
    assert line["timestamp"].endswith("Z")


def test_text_for_people_is_redacted_too(lines, capsys):
    logs.configure("test", json=False)
    try:
        raise ValueError(CANARIES["hvs"])
    except ValueError:
        logs.get_logger("t").exception(CANARIES["token"], sak="Canary")
    written = capsys.readouterr().err
    assert not leaks(written)
    assert "ValueError" in written
