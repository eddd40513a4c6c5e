"""What a change means: links that re-key, namespaces that gain or lose, and what widens."""

from __future__ import annotations

import pytest
from estates import ESTATE, files, swap, valid
from hypothesis import given
from hypothesis import strategies as st

from policy_engine.resources import KINDS, parse
from policy_engine.resources.diff import diff
from policy_engine.resources.diff_text import render
from policy_engine.resources.widening import FIELDS

OLD = valid()


def against(given):
    return diff(OLD, parse(given))


def test_no_change():
    same = diff(OLD, valid())
    assert ((), {}, ()) == (same.changes, same.links, same.namespaces)
    assert "no change" == render(same)
    assert same.as_dict()["same"] is True


WARN = 'unbound: warn\n  unboundUntil: "2027-03-31"'


@pytest.mark.parametrize(
    ("given", "path", "widens"),
    [
        (swap("dataset", "sites: [a]", "sites: [a, b]"), "sites", True),
        (swap("dataset", "sites: [a]", "sites: [b]"), "sites", True),
        (swap("dataset", "owner: acme", "owner: globex"), "owner", True),
        (swap("dataset", "owner: acme", "owner: acme\n  classification: internal"), "classification", True),
        (
            swap("dataset", "owner: acme", "owner: acme\n  classification: restricted"),
            "classification",
            False,
        ),
        (swap("binding", "regions: [us-a, eu-b]", "regions: [us-a]"), "regions", False),
        (swap("binding", "datasets: [data]", "datasets: []"), "datasets", False),
        (swap("binding", "tenant: acme", "tenant: acme\n  gate: advisory"), "gate", True),
        (swap("binding", "tenant: acme", "tenant: acme\n  undeclared: closed-world"), "undeclared", True),
        (swap("cluster", "unbound: deny", WARN), "unbound", True),
        (swap("cluster", "[kube-system]", "[kube-system, x]"), "platformNamespaces", True),
        (swap("cluster", "[kube-system]", "[]"), "platformNamespaces", False),
        (swap("cluster", "{site-a: a, site-b: b}", "{site-a: b, site-b: a}"), "siteLabels.site-a", True),
        (swap("site-a", '"US"', '"NO"'), "jurisdiction", True),
        (swap("tenant", '["US", "NO"]', '["US"]'), "jurisdictions", False),
        (swap("other", '["US"]', '["US", "NO"]'), "jurisdictions", True),
        (swap("tenant", "Acme", "Acme Inc"), "displayName", False),
        (swap("profile", "vlan: 10", 'vlan: 10\n  clearTags: ["0x8100"]'), "clearTags", True),
        (swap("profile", "vlan: 10", "vlan: 10\n  mustSecure: false"), "mustSecure", True),
        (swap("profile", "vlan: 10", "vlan: 10\n  onControlLoss: close"), "onControlLoss", False),
        (swap("profile", "maxHold: 6s", "maxHold: 7s"), "maxHold", True),
        (swap("profile", "maxHold: 6s", "maxHold: 5s"), "maxHold", False),
        (swap("profile", "XPN-256", "XPN-128"), "cipherSuite", True),
        (swap("profile", "rotateEvery: 24h", "rotateEvery: 12h"), "rotateEvery", False),
        (swap("link", "0000020001", "0000090001"), "endpoints[1].sci", True),
        (swap("flow", "class: bulk", "class: interactive"), "class", False),
    ],
)
def test_each_field_widens_in_its_direction(given, path, widens):
    change = next(c for c in against(given).changes if c.path == path)
    assert widens == bool(change.widening)


def test_the_way_back_from_onControlLoss_widens():
    closed = parse(swap("profile", "vlan: 10", "vlan: 10\n  onControlLoss: close"))
    (change,) = diff(closed, OLD).changes
    assert "stays open without control" in change.widening


@pytest.mark.parametrize("removed", ["binding", "flow"])
def test_adding_grants_widens_and_removing_them_does_not(removed):
    less = valid(**{removed: None})
    assert not diff(OLD, less).widening
    assert diff(less, OLD).widening


def test_namespaces_gain_and_lose_what_their_data_gain_and_lose():
    less = parse(files(dataset=ESTATE["dataset.yaml"].replace("[us-a, eu-b]", "[us-a]"), segment=None,
                       binding=ESTATE["binding.yaml"].replace("  segments: [part]", "")))  # fmt: skip
    (lost,) = diff(OLD, less).namespaces
    assert ({}, {"datasets": ("data from eu-b",), "segments": ("part",)}) == (lost.gains, lost.loses)
    (gained,) = diff(less, OLD).namespaces
    assert {"datasets": ("data from eu-b",), "segments": ("part",)} == gained.gains


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        (swap("profile", "vlan: 10", "vlan: 11"), "rotates at once: vlan changes"),
        (swap("profile", "XPN-256", "XPN-128"), "rotates at once: cipherSuite changes"),
        (swap("profile", "rotateEvery: 24h", "rotateEvery: 12h"), "from the next rotation: rotateEvery"),
        (swap("link", "0000020001", "0000090001"), "re-keys: end 1"),
        (swap("link", "agent: ab-a", "agent: other"), "re-keys: end 0"),
        (swap("link", "encryption: required", "encryption: none"), "declared anew; keys stay"),
    ],
)
def test_what_happens_to_a_link(given, meaning):
    assert meaning in against(given).links["ab"]


def test_new_and_removed_links():
    without = valid(link=None, flow=None)
    assert "removed" in diff(OLD, without).links["ab"]
    assert "first keying" in diff(without, OLD).links["ab"]


def test_the_text_is_stable():
    text = render(against(swap("dataset", "sites: [a]", "sites: [a, b]")))
    digest = parse(swap("dataset", "sites: [a]", "sites: [a, b]")).digest
    assert text.splitlines() == [
        f"1 change, 1 of them widening: needs approval over digest {digest}",
        "changes",
        '  ~ Dataset data sites: ["a"] -> ["a", "b"]',
        "      WIDENING: the data rest in more sites",
    ]


def test_the_table_names_real_fields():
    for kind, field in FIELDS:
        names = {f.alias or n for n, f in KINDS[kind].model_fields.items()}
        assert field in names, (kind, field)


SWAPS = [
    swap("dataset", "sites: [a]", "sites: [a, b]"),
    swap("binding", "datasets: [data]", "datasets: []"),
    swap("profile", "vlan: 10", "vlan: 11"),
    files(flow=None),
    files(),
]


@given(st.sampled_from(SWAPS), st.sampled_from(SWAPS))
def test_there_and_back_are_mirror_images(one, two):
    there, back = diff(parse(one), parse(two)), diff(parse(two), parse(one))
    assert {(c.kind, c.name, c.path) for c in there.changes} == {
        (c.kind, c.name, c.path) for c in back.changes
    }
    assert [n.gains for n in there.namespaces] == [n.loses for n in back.namespaces]
