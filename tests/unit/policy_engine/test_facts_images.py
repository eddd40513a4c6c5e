"""Image references: the OCI grammar, its hostile neighbours, and a round trip by hypothesis."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_engine.facts.images import Malformed, image_fields, parse_reference
from policy_engine.limits import LIMITS

SHA = "sha256:" + "a" * 64
SHA512 = "sha512:" + "b" * 128


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("nginx", ("docker.io", "library/nginx", None, None)),
        ("nginx:1.27", ("docker.io", "library/nginx", "1.27", None)),
        ("docker.io/library/nginx", ("docker.io", "library/nginx", None, None)),
        ("index.docker.io/nginx", ("docker.io", "library/nginx", None, None)),
        ("acme/trainer:v1", ("docker.io", "acme/trainer", "v1", None)),
        ("registry.corp:5000/ml/x", ("registry.corp:5000", "ml/x", None, None)),
        ("registry:5000/x", ("registry:5000", "x", None, None)),
        ("localhost/x:t", ("localhost", "x", "t", None)),
        ("REGISTRY.corp/ml/x@" + SHA, ("registry.corp", "ml/x", None, SHA)),
        ("[2001:db8::1]:5000/a/b:t", ("[2001:db8::1]:5000", "a/b", "t", None)),
        ("ghcr.io/a/b__c-d--e.f:T_1.2-x@" + SHA512, ("ghcr.io", "a/b__c-d--e.f", "T_1.2-x", SHA512)),
        ("k8s.gcr.io/pause", ("k8s.gcr.io", "pause", None, None)),
    ],
)
def test_a_reference_is_read_and_normalised(ref, expected):
    parsed = parse_reference(ref)
    assert expected == (parsed["registry"], parsed["repository"], parsed.get("tag"), parsed.get("digest"))


@pytest.mark.parametrize(
    ("ref", "why"),
    [
        # The four of notes on an unanchored digest pattern, then their relatives.
        ("nginx@sha256:abc", "not 64 characters"),
        ("nginx@x:y", "unknown algorithm"),
        ("nginx:latest@foo:bar", "unknown algorithm"),
        ("user@host:5000/img", "unknown algorithm"),
        ("nginx@" + SHA + " ", "not 64 characters"),
        ("nginx@sha256:" + "A" * 64, "not lower-case hex"),
        ("nginx@SHA256:" + "a" * 64, "unknown algorithm"),
        ("nginx@md5:" + "a" * 32, "unknown algorithm"),
        ("nginx@" + SHA + "@" + SHA, "not 64 characters"),
        ("nginx@" + SHA + ":tag", "not 64 characters"),
        ("nginx@", "without an algorithm"),
        ("<CHANGE ME>", "malformed repository"),
        ("{{ image }}", "malformed repository"),
        ("$(IMAGE)", "malformed repository"),
        ("", "empty"),
        (" nginx", "white space"),
        ("nginx ", "white space"),
        ("nginx\n", "white space"),
        ("Nginx", "upper-case"),
        ("ghcr.io/Acme/x", "upper-case"),
        ("nginx:", "malformed tag"),
        ("nginx:.x", "malformed tag"),
        ("nginx:" + "t" * 129, "malformed tag"),
        (":tag", "no repository"),
        ("registry.corp/", "no repository"),
        ("registry.corp:x/y", "malformed registry"),
        ("-bad.corp/y", "malformed registry"),
        ("a//b", "malformed repository"),
        ("a/../b", "malformed repository"),
        ("a___b", "malformed repository"),
        ("https://registry.corp/x", "malformed"),
        ("a" * 64, "bare image id"),
        ("x.y/" + "a/" * 127 + "b", "255"),
        ("nginx：1", "malformed repository"),
        ("nginx:１", "malformed tag"),
        ("x" * (LIMITS.image_reference_chars + 1), "too long"),
    ],
)
def test_a_malformed_reference_says_why(ref, why):
    with pytest.raises(Malformed, match=why):
        parse_reference(ref)
    assert why in image_fields(ref)["invalid"]


def test_a_reason_never_repeats_the_reference():
    secret = "hunter2 is here"
    assert secret not in image_fields(secret)["invalid"]


def test_an_endless_reference_is_cut_in_the_facts():
    assert LIMITS.image_reference_chars == len(image_fields("x" * 10_000)["ref"])


LOWER = string.ascii_lowercase + string.digits
word = st.text(LOWER, min_size=1, max_size=8)
component = st.tuples(word, st.sampled_from(["", ".x", "_y", "__z", "-w", "---v"])).map("".join)
path = st.lists(component, min_size=1, max_size=4).map("/".join)
host = st.one_of(
    st.tuples(word, word).map(".".join),
    st.tuples(word, st.integers(1, 65535)).map(lambda t: f"{t[0]}:{t[1]}"),
    st.just("localhost"),
)
tag = st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=20)
digest = st.one_of(
    st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:".__add__),
    st.text("0123456789abcdef", min_size=128, max_size=128).map("sha512:".__add__),
)


@given(host, path, st.none() | tag, st.none() | digest)
def test_what_the_grammar_makes_is_taken_apart_again(h, p, t, d):
    ref = f"{h}/{p}" + (f":{t}" if t else "") + (f"@{d}" if d else "")
    parsed = parse_reference(ref)
    assert (h, p, t, d) == (parsed["registry"], parsed["repository"], parsed.get("tag"), parsed.get("digest"))


@given(st.text())
def test_any_text_is_a_reference_or_a_reason(text):
    parsed = image_fields(text)
    assert ("invalid" in parsed) != ("repository" in parsed)


@given(host, path, digest, st.characters(codec="utf-8"))
def test_nothing_may_follow_a_digest(h, p, d, extra):
    assert "invalid" in image_fields(f"{h}/{p}@{d}{extra}")
