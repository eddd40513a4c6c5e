"""Facts of pods: every image, placement, volumes, declared data, endpoints; and what is no pod at all."""

from __future__ import annotations

import json

import pytest
from facts_help import draw, first, pod

from policy_engine.facts import Claim, NoLookup
from policy_engine.limits import LIMITS

TEMPLATED = [
    ("apps/v1", "Deployment", "spec.template"),
    ("apps/v1", "StatefulSet", "spec.template"),
    ("apps/v1", "DaemonSet", "spec.template"),
    ("apps/v1", "ReplicaSet", "spec.template"),
    ("batch/v1", "Job", "spec.template"),
    ("batch/v1", "CronJob", "spec.jobTemplate.spec.template"),
    ("v1", "ReplicationController", "spec.template"),
    ("v1", "PodTemplate", "template"),
]


def controller(api_version, kind, path, template):
    obj = template
    for step in reversed(path.split(".")):
        obj = {step: obj}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "c"}, **obj}


@pytest.mark.parametrize(("api_version", "kind", "path"), TEMPLATED)
def test_every_controller_shows_the_pods_it_makes(api_version, kind, path):
    template = {
        "metadata": {"annotations": {"sluicegate.io/datasets": "d1"}},
        "spec": {"containers": [{"name": "a", "image": "busybox:1"}]},
    }
    found = first(controller(api_version, kind, path, template))
    assert f"{path}.spec" == found["path"]
    assert [{"name": "d1", "path": f"{path}.metadata.annotations[sluicegate.io/datasets]"}] == found[
        "datasets"
    ]
    assert ["library/busybox"] == [i["repository"] for i in found["images"]]


@pytest.mark.parametrize(("api_version", "kind", "path"), TEMPLATED)
def test_annotations_of_the_controller_itself_declare_nothing(api_version, kind, path):
    obj = controller(api_version, kind, path, {"spec": {"containers": [{"name": "a", "image": "busybox"}]}})
    obj["metadata"]["annotations"] = {"sluicegate.io/datasets": "d1"}
    assert first(obj)["declared"] is False


def test_images_come_from_all_four_places():
    found = draw(
        pod(
            {
                "initContainers": [{"name": "i", "image": "a/i:1"}],
                "ephemeralContainers": [{"name": "e", "image": "a/e:1"}],
                "volumes": [{"name": "w", "image": {"reference": "a/weights:latest"}}],
            }
        )
    )
    assert ["a/e:1", "a/i:1", "a/weights:latest", "ghcr.io/acme/x:1"] == found["images"]
    roles = {i["ref"]: (i["container"], i["role"]) for i in found["pods"][0]["images"]}
    assert ("w", "volume") == roles["a/weights:latest"]
    assert ("e", "ephemeral") == roles["a/e:1"]
    assert ("i", "init") == roles["a/i:1"]


def test_a_malformed_image_is_invalid_and_unreadable_and_listed():
    found = draw(pod({"containers": [{"name": "a", "image": "nginx@x:y"}]}))
    assert ["nginx@x:y"] == found["images"]
    assert "invalid" in found["pods"][0]["images"][0]
    assert ["spec.containers[0].image"] == [u["path"] for u in found["unreadable"]]


def test_the_values_of_variables_never_enter():
    env = [
        {"name": "TOKEN", "value": "canary-1"},
        {"name": "AWS_ENDPOINT_URL", "value": "http://user:canary-2@S3.example.com:9000/canary-3?k=canary-4"},
        {"name": "REDIS_URL", "value": "redis://:canary-5/with/slash@host"},
        {"name": "MINIO_ENDPOINT", "value": "canary-6"},
        {"name": "HF_ENDPOINT", "valueFrom": {"secretKeyRef": {"name": "canary-7"}}},
    ]
    container = {"name": "a", "image": "x", "env": env, "args": ["canary-8"], "command": ["canary-9"]}
    found = draw(pod({"containers": [container]}))
    assert "canary" not in json.dumps(found)
    assert [
        ("AWS_ENDPOINT_URL", "http", "s3.example.com", True),
        ("REDIS_URL", "redis", "", True),
    ] == [(e["var"], e["scheme"], e["host"], e["insecure"]) for e in found["pods"][0]["endpoints"]]


@pytest.mark.parametrize(
    ("name", "value", "insecure"),
    [
        ("S3_ENDPOINT", "https://s3.example.com", False),
        ("S3_ENDPOINT", "http://s3.example.com", True),
        ("S3_ENDPOINT", "HTTP://s3.example.com", True),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317", False),
        ("MINIO_ENDPOINT", "minio:9000", False),
        ("S3_USE_HTTPS", "0", True),
        ("MINIO_SECURE", "False", True),
        ("VAULT_SKIP_VERIFY", "true", True),
    ],
)
def test_well_known_variables_say_scheme_and_host(name, value, insecure):
    env = [{"name": name, "value": value}]
    (endpoint,) = first(pod({"containers": [{"name": "a", "image": "x", "env": env}]}))["endpoints"]
    assert insecure == endpoint["insecure"]


@pytest.mark.parametrize(
    ("name", "value"), [("S3_USE_HTTPS", "1"), ("VAULT_SKIP_VERIFY", ""), ("OTHER", "http://x")]
)
def test_variables_that_say_nothing_are_not_listed(name, value):
    env = [{"name": name, "value": value}]
    assert [] == first(pod({"containers": [{"name": "a", "image": "x", "env": env}]}))["endpoints"]


def test_placement_is_node_selector_and_required_affinity_only():
    terms = [
        {
            "matchExpressions": [{"key": "site", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        },
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
        }
    }
    found = draw(pod({"nodeSelector": {"k": "v"}, "affinity": affinity}))
    placement = found["pods"][0]["placement"]
    assert {"k": "v"} == placement["nodeSelector"]
    assert [
        [
            {"key": "site", "op": "In", "values": ["a", "b"]},
            {"key": "metadata.name", "op": "In", "values": ["n1"], "field": True},
        ],
        [{"key": "gpu", "op": "Exists", "values": []}],
    ] == placement["required"]
    assert [{"what": "Node", "name": "n1", "path": "spec.nodeName"}] == found["unresolved"]


def test_node_labels_are_kept_only_where_a_kubelet_may_not_write():
    class Nodes(NoLookup):
        def node_labels(self, name):
            return {
                "node-restriction.kubernetes.io/sluicegate-site": "a",
                "node-restriction.kubernetes.io/é": "no key of ours",
                "topology.kubernetes.io/region": "liar",
            }

    placement = first(pod({"nodeName": "n1"}), Nodes())["placement"]
    assert {"n1": {"node-restriction.kubernetes.io/sluicegate-site": "a"}} == placement["nodes"]


def test_accelerators_count_what_runs_at_once():
    def container(name, gpus, **more):
        return {
            "name": name,
            "image": "x",
            "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": "4"}},
            **more,
        }

    spec = {
        "containers": [container("a", 4), container("b", "2")],
        "initContainers": [container("i", 5), container("s", 1, restartPolicy="Always")],
    }
    assert {"nvidia.com/gpu": 7} == first(pod(spec))["accelerators"]
    spec["initContainers"][0] = container("i", 16)
    assert {"nvidia.com/gpu": 16} == first(pod(spec))["accelerators"]


@pytest.mark.parametrize(
    ("amount", "whole"),
    [("8.0", 8), ("1e1", 10), ("8000m", 8), ("1T", 10**12), ("2Ki", 2048), (".5k", 500), ("+3", 3), (0, 0)],
)
def test_an_amount_is_read_in_every_spelling(amount, whole):
    container = {"name": "a", "image": "x", "resources": {"limits": {"nvidia.com/gpu": amount}}}
    assert {"nvidia.com/gpu": whole} == first(pod({"containers": [container]}))["accelerators"]


@pytest.mark.parametrize(
    "amount", ["0.5", -1, 2**60, None, True, 1.5, "1e99", "9E", "8 ", "", "e1", "1Ei", "٨"]
)
def test_an_unreadable_amount_is_said(amount):
    container = {"name": "a", "image": "x", "resources": {"limits": {"nvidia.com/gpu": amount}}}
    assert draw(pod({"containers": [container]}))["unreadable"]


class Claims(NoLookup):
    def claim(self, namespace, name):
        if (namespace, name) != ("acme-train", "data"):
            return None
        return Claim(
            {"sluicegate.io/datasets": "from-claim"}, "cache.csi", {"sluicegate.io/segments": "from-volume"}
        )


def test_a_claim_brings_what_it_and_its_volume_declare():
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    found = first(pod({"volumes": volumes}), Claims())
    assert ["from-claim"] == [d["name"] for d in found["datasets"]]
    assert ["from-volume"] == [s["name"] for s in found["segments"]]
    assert [{"name": "v", "type": "persistentVolumeClaim", "claim": "data", "driver": "cache.csi"}] == found[
        "volumes"
    ]
    assert found["declared"] is True


def test_an_unknown_claim_is_unresolved():
    found = draw(pod({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}]}), Claims())
    path = "spec.volumes[0].persistentVolumeClaim.claimName"
    assert [{"what": "PersistentVolumeClaim", "name": "other", "path": path}] == found["unresolved"]


def test_csi_attributes_and_claim_templates_declare():
    csi = {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"sluicegate.io/datasets": "a"}}}
    template = {"metadata": {"annotations": {"sluicegate.io/datasets": "b"}}}
    found = first(pod({"volumes": [csi, {"name": "e", "ephemeral": {"volumeClaimTemplate": template}}]}))
    assert ["a", "b"] == [d["name"] for d in found["datasets"]]
    stateful = controller("apps/v1", "StatefulSet", "spec.template", {"spec": pod()["spec"]})
    stateful["spec"]["volumeClaimTemplates"] = [template]
    assert ["b"] == [d["name"] for d in first(stateful)["datasets"]]


def test_a_pod_declares_only_so_much():
    names = ",".join(f"n{i}" for i in range(LIMITS.declared_names))
    csi = {"csi": {"driver": "d", "volumeAttributes": {"sluicegate.io/datasets": names}}}
    found = draw(
        pod({"volumes": [{"name": "v", **csi}] * (LIMITS.declared_total // LIMITS.declared_names + 1)})
    )
    assert LIMITS.declared_total == len(found["pods"][0]["datasets"])
    assert ["names" in u["why"] for u in found["unreadable"]] == [True]


def test_host_access_is_said():
    volumes = [
        {"name": "h", "hostPath": {"path": "/etc"}},
        {"name": "n", "nfs": {"server": "nas", "path": "/x"}},
        {"name": "e"},
    ]
    found = first(pod({"volumes": volumes, "hostNetwork": True, "priorityClassName": "high"}))
    assert ["/etc"] == found["hostPaths"]
    assert [
        {"name": "h", "type": "hostPath", "path": "/etc"},
        {"name": "n", "type": "nfs", "server": "nas", "path": "/x"},
        {"name": "e", "type": "emptyDir"},
    ] == found["volumes"]
    assert found["hostNetwork"] is True
    assert "high" == found["priorityClass"]


@pytest.mark.parametrize(
    ("value", "names", "declared", "bad"),
    [
        ("a, b,a", ["a", "b"], True, False),
        ("none", [], True, False),
        ("", [], False, False),
        (" , ", [], False, False),
        ("none,a", ["a"], True, True),
        ("A", [], True, True),
        ("a b", [], True, True),
        (",".join(f"n{i}" for i in range(65)), [], True, True),
    ],
)
def test_a_declaration_is_read_or_said_to_be_wrong(value, names, declared, bad):
    found = draw(pod(annotations={"sluicegate.io/datasets": value}))
    assert names == [d["name"] for d in found["pods"][0]["datasets"]]
    assert declared == found["pods"][0]["declared"]
    assert bad == bool(found["unreadable"])


FIELDS = [
    "containers",
    "initContainers",
    "ephemeralContainers",
    "volumes",
    "nodeSelector",
    "affinity",
    "nodeName",
]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [None, [], {}, "x", 7, True, [None], ["x"], [[]], [{}]])
def test_a_wrong_type_is_never_a_crash(field, value):
    found = draw(pod({field: value}))
    fine = value is None or value in ([], {})
    if field == "containers" and value != []:
        assert found["unreadable"]
    elif fine and not (field == "volumes" and value == {}):
        wrong = (value == {} and field in {"initContainers", "ephemeralContainers"}) or False
        assert wrong == bool(found["unreadable"])
    elif (field, value) != ("nodeName", "x") and (field, value) != ("volumes", [{}]):
        assert found["unreadable"]


@pytest.mark.parametrize("value", [None, [], "x", 7, {"a": None}, {"sluicegate.io/datasets": 7}])
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_wrong_metadata_is_never_a_crash(field, value):
    found = draw(pod(**{field: value}))
    assert 1 == len(found["pods"])
    if field == "annotations" and value in ("x", 7, [], {"sluicegate.io/datasets": 7}):
        assert found["unreadable"]


def test_a_volume_with_two_sources_hides_neither():
    volume = {"name": "v", "emptyDir": {}, "image": {"reference": "a/b:1"}}
    found = draw(pod({"volumes": [volume]}))
    assert "a/b:1" in found["images"]
    assert found["unreadable"]
