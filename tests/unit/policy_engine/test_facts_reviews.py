"""Facts of reviews that are not a plain CREATE: updates, deletes, connections, subresources, odd requests."""

from __future__ import annotations

import json

import pytest
from facts_help import draw, pod

from evidence.canonical import canonical
from policy_engine.facts import NoLookup, facts, old_facts, request_for


def review(**request):
    return facts(request, NoLookup(), cluster="train-us")


def test_generate_name_without_a_name():
    obj = pod()
    obj["metadata"] = {"generateName": "train-"}
    subject = draw(obj, name="")["subject"]
    assert ("", "train-") == (subject["name"], subject["generateName"])


def test_a_delete_starts_nothing_but_has_its_subject():
    found = draw(pod(), operation="DELETE", object=None, oldObject=pod())
    assert [] == found["pods"]
    assert [] == found["images"]
    assert [] == found["unreadable"]
    assert ("DELETE", "p", "Pod") == tuple(found["subject"][k] for k in ("operation", "name", "kind"))


def test_a_delete_of_nothing_is_clean():
    assert [] == review(operation="DELETE", kind={"kind": "Pod"}, object=None, oldObject=None)["unreadable"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize("obj", [None, [], "x", 7])
def test_a_review_without_an_object_is_unreadable(operation, obj):
    found = review(operation=operation, kind={"kind": "Pod"}, object=obj)
    assert ["object"] == [u["path"] for u in found["unreadable"]]


def test_an_unknown_operation_is_unreadable():
    assert "request.operation" in [u["path"] for u in draw(pod(), operation="PATCH")["unreadable"]]
    assert "request.operation" in [u["path"] for u in draw(pod(), operation=None)["unreadable"]]


def test_old_facts_describe_the_old_object():
    request = {**request_for(pod()), "operation": "UPDATE", "oldObject": pod({"nodeName": "n"})}
    old = old_facts(request, NoLookup(), cluster="c")
    assert "n" == old["pods"][0]["placement"]["nodeName"]
    assert old_facts(request_for(pod()), NoLookup(), cluster="c") is None


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize", "flumox"])
def test_a_subresource_with_the_pod_in_it_is_read_as_a_pod(subresource):
    obj = pod({"ephemeralContainers": [{"name": "debug", "image": "busybox"}]})
    found = draw(obj, operation="UPDATE", subResource=subresource)
    assert subresource == found["subject"]["subresource"]
    assert ["busybox", "ghcr.io/acme/x:1"] == found["images"]


def test_the_old_kind_of_ephemeral_containers():
    obj = {
        "apiVersion": "v1",
        "kind": "EphemeralContainers",
        "metadata": {"name": "p"},
        "ephemeralContainers": [{"name": "d", "image": "busybox@x:y"}],
    }
    found = draw(obj, operation="UPDATE", subResource="ephemeralcontainers")
    assert ["busybox@x:y"] == found["images"]
    assert found["unreadable"]


class OnePod(NoLookup):
    def pod(self, namespace, name):
        known = pod(labels={"app": "x"}, annotations={"sluicegate.io/datasets": "d"})
        return known if (namespace, name) == ("acme-train", "p") else None

    def node_labels(self, name):
        return {"node-restriction.kubernetes.io/sluicegate-site": "cw"}


EXEC = {
    "uid": "u",
    "operation": "CONNECT",
    "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
    "subResource": "exec",
    "namespace": "acme-train",
    "object": {"kind": "PodExecOptions", "container": "main", "command": ["sh", "-c", "canary"]},
}


def test_exec_tells_about_its_pod_and_nothing_about_the_command():
    found = facts({**EXEC, "name": "p"}, OnePod(), cluster="c")
    assert [] == found["pods"]
    expected = {"pod": "p", "known": True, "labels": {"app": "x"}, "datasets": ["d"], "segments": []}
    assert expected == found["target"]
    assert "canary" not in json.dumps(found)


def test_exec_into_an_unknown_pod_is_unresolved():
    found = facts({**EXEC, "name": "other"}, OnePod(), cluster="c")
    assert found["target"]["known"] is False
    assert [{"what": "Pod", "name": "other", "path": "request.name"}] == found["unresolved"]


def binding(name):
    obj = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n1"},
    }
    return {**request_for(obj, namespace="acme-train"), "subResource": "binding", "name": name}


def test_a_binding_is_the_pod_on_its_node():
    found = facts(binding("p"), OnePod(), cluster="c")
    assert "n1" == found["target"]["node"]
    assert "n1" == found["pods"][0]["placement"]["nodeName"]
    assert ["d"] == [d["name"] for d in found["pods"][0]["datasets"]]


def test_a_binding_of_an_unknown_pod_is_unresolved():
    assert "Pod" in [u["what"] for u in facts(binding("other"), OnePod(), cluster="c")["unresolved"]]


def test_a_binding_brings_its_annotations():
    # The API server copies them to the pod.
    request = binding("p")
    request["object"]["metadata"]["annotations"] = {"sluicegate.io/datasets": "other"}
    found = facts(request, OnePod(), cluster="c")
    assert ["other"] == [d["name"] for d in found["pods"][0]["datasets"]]
    assert ["other"] == found["target"]["datasets"]


def test_a_custom_kind_named_binding_is_searched():
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "spec": pod()["spec"],
    }
    found = facts(request_for(obj, namespace="acme-train"), OnePod(), cluster="c")
    assert ["spec"] == [p["path"] for p in found["pods"]]
    assert "target" not in found


@pytest.mark.parametrize(
    ("kind", "resource", "subresource"),
    [
        ("ServiceProxyOptions", "services", "proxy"),
        ("NodeProxyOptions", "nodes", "proxy"),
        ("VirtualMachineInstance", "virtualmachineinstances", "console"),
    ],
)
def test_a_connection_to_something_else_means_no_pod(kind, resource, subresource):
    request = {
        **EXEC,
        "name": "p",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": resource},
        "subResource": subresource,
    }
    found = facts(request, NoLookup(), cluster="c")
    assert "target" not in found
    assert ([], [], []) == (found["pods"], found["unresolved"], found["unreadable"])


def test_an_eviction_starts_nothing():
    found = draw(
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}, subResource="eviction"
    )
    assert ([], [], []) == (found["pods"], found["unresolved"], found["unreadable"])


def test_services_and_ingresses_say_what_they_open():
    def service(**spec):
        return draw({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})[
            "exposure"
        ]

    assert {"external": False, "serviceType": "ClusterIP"} == service()
    assert {"external": True, "serviceType": "LoadBalancer"} == service(type="LoadBalancer")
    assert ["198.51.100.7"] == service(externalIPs=["198.51.100.7"])["externalIPs"]
    ingress = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "spec": {"rules": [{"host": "a.example"}, {}]},
    }
    assert {"external": True, "hosts": ["*", "a.example"]} == draw(ingress)["exposure"]


def test_secrets_are_not_searched():
    obj = {
        "apiVersion": "v1",
        "kind": "Secret",
        "stringData": {"x": "kind: Pod\nspec:\n  containers:\n  - image: a"},
    }
    found = draw(obj)
    assert ([], [], []) == (found["images"], found["embedded"], found["unreadable"])


def test_lone_surrogates_are_said_and_never_leave():
    found = draw(pod({"containers": [{"name": "\ud800", "image": "x"}], "nodeSelector": {"a": "\udfff"}}))
    assert "object" in [u["path"] for u in found["unreadable"]]
    canonical(found)


def test_keys_outside_ascii_are_unreadable():
    found = draw(pod({"nodeSelector": {"sité": "a"}}))
    assert {} == found["pods"][0]["placement"]["nodeSelector"]
    assert found["unreadable"]
    canonical(found)


@pytest.mark.parametrize("kind", [None, 7, "x", [], {"kind": 7}])
@pytest.mark.parametrize("user", [None, 7, {"username": 7, "groups": 7}, {"groups": [1, "g"]}])
def test_an_odd_request_is_never_a_crash(kind, user):
    found = review(operation="CREATE", kind=kind, userInfo=user, object=pod(), namespace=7, name=[])
    assert "" == found["subject"]["namespace"]
    canonical(found)


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("Pod", "pods"),
        ("Ingress", "ingresses"),
        ("NetworkPolicy", "networkpolicies"),
        ("Endpoints", "endpoints"),
    ],
)
def test_a_manifest_becomes_a_request_for_the_resource_of_its_kind(kind: str, resource: str) -> None:
    assert resource == request_for({"apiVersion": "v1", "kind": kind})["resource"]["resource"]
