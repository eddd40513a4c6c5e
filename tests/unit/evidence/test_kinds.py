"""Kinds: every record kind that other parts draft is declared, each field in exactly one part."""

from __future__ import annotations

import re

import pytest

from evidence.kinds import KINDS

NAMED = [
    "decision",
    "decision_summary",
    "resource_set",
    "bootstrap",
    "widened_unapproved",
    "bundle",
    "rotation_step",
    "rotation_end",
    "key_destroyed",
    "agent_enrolled",
    "lease",
    "link_verdict",
    "violation",
    "permit",
    "close",
    "reopen",
    "source_object",
    "log_segment",
    "attribution_run",
    "heartbeat",
    "faults_enabled",
    "package_export",
    "signing_key",
]

RESERVED = {"boot_id", "kind", "received_time", "event_time", "scope", "source", "source_seq", "version"}


@pytest.mark.parametrize("name", NAMED)
def test_is_declared(name):
    assert name in KINDS


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_field_stands_in_one_part_and_has_a_plain_name(name):
    kind = KINDS[name]
    assert not kind.public & kind.sensitive
    assert not kind.header & RESERVED
    for field in kind.public | kind.sensitive | kind.header:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", field)


def test_counters_of_a_shared_link_are_sensitive():
    assert "counters" in KINDS["link_verdict"].sensitive
    assert "counters_digest" in KINDS["link_verdict"].public


def test_no_field_is_made_to_carry_key_material():
    carriers = {
        "sak",
        "cak",
        "salt",
        "token_value",
        "ciphertext",
        "data_key",
        "secret_id",
        "private_key",
        "env",
    }
    for kind in KINDS.values():
        assert not carriers & (kind.public | kind.sensitive | kind.header)
