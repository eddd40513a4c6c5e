"""Landing: node selector, affinity and node names over the cluster's site map; doubt widens."""

from __future__ import annotations

import time

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


@pytest.mark.parametrize(
    "terms",
    [
        [[term("In", "site-a", *(f"x{i}" for i in range(60_000)))]],
        [[term("In", "site-a")]] * 30_000,
        [[term("In", "site-a")] * 30_000],
        [fields("na", *(f"n{i}" for i in range(60_000)))],
    ],
)
def test_an_endless_affinity_lands_anywhere_at_once(terms):
    started = time.perf_counter()
    assert (ALL, []) == land(affinity(*terms))
    assert time.perf_counter() - started < 5


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


# An oracle: nodes, and the scheduler's own question about each, asked without our reading of it.

NUMBERED = valid(
    cluster=ESTATE["cluster.yaml"].replace("{site-a: a, site-b: b}", '{"7": a, "9": b, site-b: b}')
).clusters["c"]
LABELS = ["7", "9", "site-b", "mars", "8", "", None]
NODES = {f"n{i}": {"gpu": "x"} | ({LABEL: v} if v is not None else {}) for i, v in enumerate(LABELS)}


class AllNodes(NoLookup):
    def node_labels(self, name):
        return NODES.get(name)


def scheduler_takes(spec, name, labels):
    """Whether kubelet and scheduler would let this pod run on this node."""
    if spec.get("nodeName") not in {None, name}:
        return False
    if any(labels.get(k) != v for k, v in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {})
    if not required:
        return True
    terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return any(term_takes(t, name, labels) for t in terms)


def term_takes(wanted, name, labels):
    parts = [(e, labels.get(e["key"])) for e in wanted.get("matchExpressions", [])]
    parts += [(e, name) for e in wanted.get("matchFields", [])]
    return bool(parts) and all(requirement(e, found) for e, found in parts)


def requirement(expression, found):
    operator, values = expression["operator"], expression["values"]
    if operator in {"Gt", "Lt"}:
        try:
            number, bound = int(found or "x"), int(values[0])
        except ValueError:
            return False
        return number > bound if operator == "Gt" else number < bound
    return {
        "In": found is not None and found in values,
        "NotIn": found not in values,
        "Exists": found is not None,
        "DoesNotExist": found is None,
    }[operator]


VALUES = st.lists(st.sampled_from(["7", "9", "site-b", "mars", "8", "jupiter"]), min_size=1, max_size=3)
EXPRESSIONS = st.one_of(
    st.builds(lambda o, v: term(o, *v), st.sampled_from(["In", "NotIn"]), VALUES),
    st.builds(term, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        term, st.sampled_from(["Gt", "Lt"]), st.sampled_from(["7", "8", "+8", "-1", "007", "x", "2" * 30])
    ),
    st.builds(lambda o: term(o, "x", key="gpu"), st.sampled_from(["In", "NotIn"])),
)
NAMED = st.builds(
    lambda o, n: {"key": "metadata.name", "operator": o, "values": [n]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from([*NODES, "unheard-of"]),
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(EXPRESSIONS, max_size=3),
        "matchFields": st.lists(NAMED, max_size=1),
    },
)
PLACEMENTS = st.builds(
    lambda terms, selected, node: {
        **(affinity(*terms) if terms else {}),
        **({"nodeSelector": {LABEL: selected}} if selected is not None else {}),
        **({"nodeName": node} if node else {}),
    },
    st.lists(TERMS, max_size=3),
    st.sampled_from([None, None, "7", "site-b", "mars", ""]),
    st.sampled_from([None, None, None, *NODES]),
)


@given(PLACEMENTS)
def test_wherever_the_scheduler_may_put_it_is_a_landing(spec):
    found = landing("spec", first(pod(spec), AllNodes())["placement"], NUMBERED)
    for name, labels in NODES.items():
        if scheduler_takes(spec, name, labels):
            site = NUMBERED.site_labels.get(labels.get(LABEL))
            may = {site} if site else set(NUMBERED.sites)
            assert may <= set(found["sites"]), (name, labels)
