"""Addresses as the program will see them: variables put into each other, and what clients make of odd ones."""

from __future__ import annotations

import json
import time

import pytest
from facts_help import draw, pod

from policy_engine.limits import LIMITS


def env(*pairs):
    entries = [{"name": n, "value": v} if isinstance(v, str) else {"name": n, **v} for n, v in pairs]
    return pod({"containers": [{"name": "main", "image": "x", "env": entries}]})


def ends(*pairs):
    (found,) = draw(env(*pairs))["pods"]
    return [(e["var"], e["scheme"], e["host"], e["insecure"]) for e in found["endpoints"]]


@pytest.mark.parametrize(
    ("pairs", "scheme", "host", "insecure"),
    [
        ([("S", "http"), ("HF_ENDPOINT", "$(S)://hub.example")], "http", "hub.example", True),
        ([("A", "http"), ("B", "$(A)://hub"), ("HF_ENDPOINT", "$(B).example")], "http", "hub.example", True),
        ([("S", "http"), ("S", "https"), ("HF_ENDPOINT", "$(S)://hub")], "https", "hub", False),
        ([("H", "localhost"), ("HF_ENDPOINT", "http://$(H)")], "http", "localhost", False),
        ([("HF_ENDPOINT", "http://$(H)"), ("H", "localhost")], "http", "", True),  # only what stands before
        ([("S", "http"), ("HF_ENDPOINT", "https://h/$(S)://x")], "https", "h", False),
        ([("S", "http"), ("HF_ENDPOINT", "$$(S)://hub.example")], "", "", True),  # escaped: no scheme at all
        ([("HF_ENDPOINT", "$(S)://hub.example")], "", "", True),  # from elsewhere: not known to be secure
    ],
)
def test_variables_are_put_in_as_the_kubelet_does(pairs, scheme, host, insecure):
    assert [("HF_ENDPOINT", scheme, host, insecure)] == ends(*pairs)


def test_a_value_from_elsewhere_says_nothing():
    source = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert [] == ends(("HF_ENDPOINT", source), ("HF_ENDPOINT", "$(URL)"), ("S3_ENDPOINT", "$(A"))


def test_values_of_other_variables_never_leave():
    obj = env(("PW", "canary"), ("HF_ENDPOINT", "https://u:$(PW)@hub.example/$(PW)"))
    assert "canary" not in json.dumps(draw(obj))


def test_variables_that_double_each_other_are_refused_at_once():
    pairs = [("V0", "x" * 64), *((f"V{i}", f"$(V{i - 1})$(V{i - 1})") for i in range(1, 1_000))]
    started = time.perf_counter()
    found = draw(env(*pairs, ("HF_ENDPOINT", "$(V999)")))
    assert found["unreadable"]
    assert time.perf_counter() - started < 5
    found = draw(
        env(*((f"V{i}", "$(" * 500) for i in range(200)), ("HF_ENDPOINT", "$(" * LIMITS.env_value_chars))
    )
    assert time.perf_counter() - started < 5
    assert [] == found["unreadable"]


@pytest.mark.parametrize(
    ("value", "scheme", "host", "insecure"),
    [
        ("http://evil.example\\@localhost", "http", "", True),
        ("http:\\\\evil.example", "http", "evil.example", True),
        ("http:/evil.example", "http", "evil.example", True),
        ("http:///evil.example", "http", "evil.example", True),
        ("ht\ttp://evil.example", "http", "evil.example", True),
        ("\x00\x1f http://evil.example", "http", "evil.example", True),
        ("http://evil.example\n@localhost/", "http", "localhost", False),  # the newline is dropped: user@host
        ("http://localhost@evil.example", "http", "evil.example", True),
        ("http://localhost.evil.example", "http", "localhost.evil.example", True),
        ("HTTP://LOCALHOST:80/x", "http", "localhost", False),
        ("https://hub.example", "https", "hub.example", False),
    ],
)
def test_odd_addresses_are_read_as_clients_read_them(value, scheme, host, insecure):
    assert [("HF_ENDPOINT", scheme, host, insecure)] == ends(("HF_ENDPOINT", value))
