"""Context: the slice, what it never reveals, and that the estate's size costs nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from estates import ESTATE, doc, valid
from facts_help import draw, pod

from evidence.canonical import canonical
from policy_engine.context import context
from policy_engine.gate.posture import LinkPosture

RESOURCES = valid()
LABEL = "node-restriction.kubernetes.io/sluicegate-site"


def ask(obj=None, *, cluster="c", namespace="train", resources=RESOURCES, postures=None, **request):
    drawn = draw(obj or pod(), namespace=namespace, **request)
    drawn["subject"]["cluster"] = cluster
    out = context(drawn, resources, postures or {})
    canonical(out)
    return out


def reading(*datasets, site=None, segments=()):
    notes = {"sluicegate.io/datasets": ",".join(datasets), "sluicegate.io/segments": ",".join(segments)}
    return pod({"nodeSelector": {LABEL: site}} if site else {}, annotations=notes)


def test_a_read_across_a_link():
    out = ask(reading("data", site="site-b"))
    assert {"name": "c", "known": True, "unbound": "deny", "platform": False} == out["cluster"]
    assert out["bound"] is True
    binding = {
        "name": "train",
        "tenant": "acme",
        "regions": ["us-a", "eu-b"],
        "undeclared": "deny",
        "gate": "required",
    }
    assert binding == out["binding"]
    assert {"name": "acme", "jurisdictions": ["US", "NO"]} == out["tenant"]
    assert [{"pod": "spec", "sites": ["b"], "unmapped": []}] == out["landing"]
    dataset = {
        "granted": True,
        "owner": "acme",
        "regions": ["us-a", "eu-b"],
        "sites": ["a"],
        "classification": "confidential",
    }
    assert {"data": dataset} == out["datasets"]
    read = {
        "pod": "spec",
        "kind": "dataset",
        "name": "data",
        "from": "a",
        "to": "b",
        "local": False,
        "flow": "a-to-b",
        "links": ["ab"],
    }
    assert [read] == out["reads"]
    assert {"a", "b"} == set(out["sites"])
    assert {"region": "us-a", "jurisdiction": "US", "provider": "gcp"} == out["sites"]["a"]


def test_every_pair_of_holding_and_landing_site_is_a_read():
    reads = ask(reading("data", segments=["part"]))["reads"]
    assert [
        ("dataset", "a", "a", True, None),
        ("dataset", "a", "b", False, "a-to-b"),
        ("segment", "b", "a", False, None),
        ("segment", "b", "b", True, None),
    ] == [(r["kind"], r["from"], r["to"], r["local"], r["flow"]) for r in reads]


def test_a_link_without_posture_is_unknown():
    link = ask(reading("data", site="site-b"))["links"]["ab"]
    expected = ("required", "none", "unknown", "0", "0", 0)
    assert expected == tuple(
        link[k] for k in ("encryption", "state", "posture", "since_ns", "fresh_until_ns", "generation")
    )


def test_a_posture_is_carried_as_it_is():
    posture = LinkPosture("required", "open", "encrypted", "proved", 5, 2**62, 9)
    link = ask(reading("data", site="site-b"), postures={"ab": posture, "other": posture})["links"]
    expected = {
        "encryption": "required",
        "state": "open",
        "posture": "encrypted",
        "reason": "proved",
        "since_ns": "5",
        "fresh_until_ns": str(2**62),
        "generation": 9,
    }
    assert {"ab": expected} == link


def test_the_declared_encryption_wins_over_a_stale_posture():
    posture = LinkPosture("none", "open", "encrypted", "x", 0, 0, 0)
    assert (
        "required"
        == ask(reading("data", site="site-b"), postures={"ab": posture})["links"]["ab"]["encryption"]
    )


def secrets(**more):
    """An estate in which another tenant has data."""
    return valid(
        foreign=doc("Dataset", "globex-only", "  owner: globex\n  sites: [a]\n  regions: [us-a]"),
        foreign_part=doc(
            "Segment", "globex-part", "  dataset: globex-only\n  tenant: globex\n  site: a\n  cache: x"
        ),
        **more,
    )


def test_foreign_and_absent_names_look_the_same():
    resources = secrets()
    for kind in ("datasets", "segments"):
        foreign = "globex-only" if kind == "datasets" else "globex-part"
        out = ask(pod(annotations={f"sluicegate.io/{kind}": f"{foreign},absent"}), resources=resources)
        assert {foreign: {"granted": False}, "absent": {"granted": False}} == out[kind]
        assert [] == out["reads"]


def test_nothing_of_another_tenant_is_in_the_slice():
    out = ask(reading("data", segments=["part"]), resources=secrets())
    assert "globex" not in json.dumps(out)


def test_an_unbound_namespace_has_no_grants():
    out = ask(reading("data"), namespace="other")
    assert (False, "deny") == (out["bound"], out["cluster"]["unbound"])
    assert "binding" not in out
    assert "tenant" not in out
    assert {"data": {"granted": False}} == out["datasets"]


def test_an_unknown_cluster_denies():
    out = ask(reading("data"), cluster="zzz")
    assert {"name": "zzz", "known": False, "unbound": "deny", "platform": False} == out["cluster"]
    assert ([], {}, False) == (out["landing"], out["sites"], out["bound"])


WARN = ESTATE["cluster.yaml"].replace(
    "unbound: deny", 'unbound: warn\n  unboundUntil: "2027-03-31"\n  warnNamespaces: [old]'
)


def test_warn_covers_named_namespaces_until_its_end():
    resources = valid(cluster=WARN)
    old = ask(namespace="old", resources=resources)["cluster"]
    assert ("warn", str(1_806_537_600 * 10**9)) == (old["unbound"], old["until_ns"])
    new = ask(namespace="new", resources=resources)["cluster"]
    assert ("deny", False) == (new["unbound"], "until_ns" in new)


def test_platform_namespaces_are_marked():
    assert ask(namespace="kube-system")["cluster"]["platform"] is True


def test_cluster_scoped_objects_run_nothing_here():
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
    runtime = {"apiVersion": "x/v1", "kind": "ClusterTrainingRuntime", "spec": {"t": {"spec": pod()["spec"]}}}
    assert "ignore" == ask(namespace, namespace="new")["cluster"]["unbound"]
    assert "ignore" == ask(runtime, namespace="")["cluster"]["unbound"]
    assert "deny" == ask(pod(), namespace="")["cluster"]["unbound"]


@dataclass
class Pods:
    def pod(self, namespace, name):
        return pod(annotations={"sluicegate.io/datasets": "data,absent"})


def test_a_connection_sees_the_grants_of_its_pod():
    request = {
        "operation": "CONNECT",
        "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
        "subResource": "exec",
        "name": "p",
    }
    out = ask({"kind": "PodExecOptions"}, lookup=Pods(), **request)
    assert {"data": True, "absent": False} == {k: v["granted"] for k, v in out["datasets"].items()}
    assert [] == out["reads"]


def big(count):
    """The estate with many more objects that no decision here names."""
    more = {
        f"t{i}": doc("Tenant", f"t{i}", f'  displayName: T{i}\n  jurisdictions: ["US"]') for i in range(count)
    }
    more |= {
        f"n{i}": doc(
            "NamespaceBinding", f"n{i}", f"  cluster: c\n  namespace: n{i}\n  tenant: t{i}\n  regions: [us-a]"
        )
        for i in range(count)
    }
    return valid(**more)


def test_the_slice_does_not_grow_with_the_estate():
    asked = reading("data", segments=["part"])
    assert ask(asked) == ask(asked, resources=big(60))


@pytest.mark.parametrize("_", range(2))
def test_asking_changes_nothing(_):
    before = RESOURCES.manifests()
    first = ask(reading("data"))
    assert first == ask(reading("data"))
    assert before == RESOURCES.manifests()
