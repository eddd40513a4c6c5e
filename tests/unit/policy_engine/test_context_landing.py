"""Landing: node selector, affinity and node names over the cluster's site map; doubt widens."""

from __future__ import annotations

import pytest
from estates import ESTATE, doc, valid
from facts_help import first, pod
from hypothesis import given
from hypothesis import strategies as st

from policy_engine.facts import NoLookup
from policy_engine.landing import landing

LABEL = "node-restriction.kubernetes.io/sluicegate-site"
CLUSTER = valid(
    site_z=doc("Site", "z", '  provider: gcp\n  region: us-z\n  jurisdiction: "US"'),
    cluster=ESTATE["cluster.yaml"]
    .replace("[a, b]", "[a, b, z]")
    .replace("{site-a: a, site-b: b}", "{site-a: a, site-b: b, site-z: z, zone-9: z}"),
).clusters["c"]
ALL = ["a", "b", "z"]


class Nodes(NoLookup):
    def node_labels(self, name):
        known = {"na": {LABEL: "site-a"}, "nx": {LABEL: "mars"}, "bare": {}}
        return known.get(name)


def affinity(*terms):
    required = {"nodeSelectorTerms": [{"matchExpressions": t} if isinstance(t, list) else t for t in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def term(operator, *values, key=LABEL):
    return {"key": key, "operator": operator, "values": list(values)}


def fields(*names):
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


def land(spec, cluster=CLUSTER):
    found = first(pod(spec), Nodes())
    out = landing("spec", found["placement"], cluster)
    return out["sites"], out["unmapped"]


@pytest.mark.parametrize(
    ("spec", "sites", "unmapped"),
    [
        ({}, ALL, []),
        ({"nodeSelector": {LABEL: "site-a"}}, ["a"], []),
        ({"nodeSelector": {LABEL: "zone-9"}}, ["z"], []),
        ({"nodeSelector": {"topology.kubernetes.io/region": "us"}}, ALL, []),
        ({"nodeSelector": {LABEL: "mars"}}, ALL, ["mars"]),
        (affinity([term("In", "site-a", "site-b")]), ["a", "b"], []),
        (affinity([term("In", "site-a")], [term("In", "site-b")]), ["a", "b"], []),
        (affinity([term("In", "site-a", "site-b"), term("In", "site-b", "site-z")]), ["b"], []),
        (affinity([term("In", "site-a")], [term("Exists", key="gpu")]), ALL, []),
        (affinity([term("NotIn", "site-a")]), ALL, []),  # a node without the label may be anywhere
        # A node with a value that nobody mapped may be anywhere too.
        (affinity([term("NotIn", "site-a"), term("Exists")]), ALL, []),
        (affinity([term("Exists")]), ALL, []),
        (affinity([term("DoesNotExist")]), ALL, []),
        (affinity([term("In", "mars", "site-a")]), ALL, ["mars"]),
        (affinity([term("Gt", "5")]), ALL, []),  # matches nothing: refused as anywhere
        (affinity([]), ALL, []),
        (affinity([term("In", "site-a")]) | {"nodeSelector": {LABEL: "site-b"}}, ALL, []),
        (affinity([term("In", "site-a", "site-b")]) | {"nodeSelector": {LABEL: "site-b"}}, ["b"], []),
        ({"nodeName": "na"}, ["a"], []),
        ({"nodeName": "nx"}, ALL, ["mars"]),
        ({"nodeName": "bare"}, ALL, []),
        ({"nodeName": "unheard-of"}, ALL, []),
        ({"nodeName": "na", "nodeSelector": {LABEL: "site-b"}}, ALL, []),
        (affinity(fields("na")), ["a"], []),
        (affinity(fields("na", "unheard-of")), ALL, []),
        (affinity({**fields("unheard-of"), "matchExpressions": [term("In", "site-b")]}), ["b"], []),
    ],
)
def test_landing(spec, sites, unmapped):
    assert (sites, unmapped) == land(spec)


@pytest.mark.parametrize(
    ("expression", "sites"),
    [
        (term("Gt", "5"), ["a", "b", "z"]),
        (term("Gt", "+5"), ["a", "b", "z"]),
        (term("Lt", "9223372036854775807"), ["a", "b", "z"]),
        (term("Gt", "-9223372036854775808"), ["a", "b", "z"]),
        (term("Gt", "0000000000000000000000000005"), ["a", "b", "z"]),
        (term("Lt", "9223372036854775808"), ["a"]),  # out of range: the scheduler matches nothing with it
        (term("Gt", "--5"), ["a"]),
        (term("Gt", "0" * 5000 + "x"), ["a"]),
        (term("Gt", "9" * 5000), ["a"]),
        (term("Gt", "5 "), ["a"]),
        (term("Gt", "٥"), ["a"]),
        (term("Gt"), ["a"]),
        (term("Gt", "1", "2"), ["a"]),
    ],
)
def test_numbers_are_compared_as_the_scheduler_does(expression, sites):
    # The second term matches site a alone: what the first adds is what it was read as.
    assert sites == land(affinity([expression], [term("In", "site-a")]))[0]


def test_a_mapped_number_is_found_by_comparison():
    numbered = valid(
        cluster=ESTATE["cluster.yaml"].replace("{site-a: a, site-b: b}", '{"7": a, "9": b, site-b: b}')
    ).clusters["c"]
    spec = affinity([term("In", "7", "9"), term("Lt", "+8")])
    assert ["a"] == land(spec, numbered)[0]


def test_a_cluster_of_one_site_has_one_landing():
    single = valid(
        cluster=ESTATE["cluster.yaml"].replace("[a, b]", "[a]").replace(", site-b: b", ""),
        binding=None,
    ).clusters["c"]
    for spec in ({}, {"nodeSelector": {LABEL: "mars"}}, {"nodeName": "unheard-of"}):
        assert (["a"], []) == land(spec, single)


@given(st.lists(st.sampled_from([term("In", "site-a"), term("In", "mars"), term("NotIn", "site-b"), term("Exists"),
                                 term("Lt", "3"), term("In", "x", key="gpu")]), min_size=1, max_size=3),
       st.sampled_from([None, "site-a", "mars"]))  # fmt: skip
def test_landing_is_never_empty(expressions, selected):
    spec = affinity(expressions) | ({"nodeSelector": {LABEL: selected}} if selected else {})
    assert land(spec)[0]
