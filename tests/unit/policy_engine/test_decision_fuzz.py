"""Whatever a review and the cluster's objects hold, there is a decision: no exception, and always a result."""

from __future__ import annotations

import copy
import random
from functools import partial

import pytest
from facts_help import pod
from rules_world import NOW, estate, example_requests, postures, shipped

from policy_engine.context import context
from policy_engine.facts import facts, old_facts, only_metadata_differs, request_for
from policy_engine.inventory.static import StaticLookup
from policy_engine.rules.decision import Before, decide
from policy_engine.rules.engine import engine_input
from policy_engine.rules.wasm import WasmEngine

SITE = "node-restriction.kubernetes.io/sluicegate-site"
COPY = {"kind": "PersistentVolumeClaim", "name": "c"}
EXPRESSIONS = [
    {"key": SITE, "operator": "Gt", "values": ["5"]},
    {"key": SITE, "operator": "In", "values": ["cw-us-east"]},
]
TERMS = [
    {"matchExpressions": EXPRESSIONS},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
]
FULL = pod(
    {
        "nodeName": "n",
        "nodeSelector": {SITE: "cw-us-east"},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}}
        },
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
            {
                "name": "b",
                "csi": {"driver": "d", "volumeAttributes": {"sluicegate.io/datasets": "us-corpus"}},
            },
            {"name": "c", "image": {"reference": "a/b:1"}},
            {
                "name": "d",
                "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "v", "dataSource": COPY}}},
            },
        ],
        "containers": [
            {
                "name": "m",
                "image": "x",
                "env": [{"name": "A", "value": "http"}, {"name": "HF_ENDPOINT", "value": "$(A)://x"}],
                "resources": {"limits": {"nvidia.com/gpu": "8"}},
            }
        ],
        "initContainers": [{"name": "i", "image": "a/b:1", "restartPolicy": "Always"}],
        "ephemeralContainers": [{"name": "e", "image": "a/b@sha256:" + "0" * 64}],
    },
    annotations={"sluicegate.io/datasets": "us-corpus", "sluicegate.io/segments": "acme-tokens"},
)
RUNTIME = {"spec": {"template": {"spec": {"replicatedJobs": [{"name": "n", "template": {"spec": FULL}}]}}}}


def named(kind, name="j", api="v1", **more):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "acme-train"}, **more}


JOBS = [{"name": name, "template": {"spec": {"template": FULL}}} for name in "ab"]
EXEC = request_for(named("PodExecOptions", "p"))
OBJECTS = [
    FULL,
    named("PersistentVolumeClaim", "c", spec={"volumeName": "v", "dataSource": COPY}),
    named("PersistentVolume", "v", spec={"csi": {"volumeAttributes": {"sluicegate.io/datasets": "x"}}}),
    {"kind": "Node", "metadata": {"name": "n", "labels": {SITE: "cw-us-east"}}},
    named("ClusterTrainingRuntime", "r", "trainer.kubeflow.org/v1", **RUNTIME),
]
REQUESTS = [
    *(request for _, request in example_requests()),
    request_for(FULL),
    {**request_for(FULL), "operation": "UPDATE", "oldObject": FULL},
    {**request_for(named("Binding", "p", target={"name": "n"})), "subResource": "binding"},
    {**EXEC, "operation": "CONNECT", "subResource": "exec"},
    request_for(
        named("JobSet", api="x/v1", spec={"replicatedJobs": JOBS, "endpoint": "http://x", "bucket": "b"})
    ),
    request_for(
        named("TrainJob", api="t/v1", spec={"runtimeRef": {"name": "r"}, "trainer": {"image": "x/y:1"}})
    ),
]
ODD = [
    *(None, [], {}, "", 7, -1, 2**70, 1.5, True, float("nan"), "x", ["x"], [None], [[]], [{}], {"x": None}),
    *({"é": 1}, "é", "\ud800", "none", "$(A)", "a" * 300, "--5", {"name": "x"}, "http://x", "spec", "Pod"),
    *("CONNECT", "UPDATE", "DELETE"),
]
KEYS = [
    "metadata",
    "spec",
    "status",
    "é",
    "image",
    "name",
    "runtimeRef",
    "containers",
    "volumeName",
    "\ud800",
]


def damaged(source, rng):
    """A copy with one to four places dropped, doubled, added or replaced."""
    whole = copy.deepcopy(source)
    for _ in range(rng.randint(1, 4)):
        at = whole
        while keys := list(at if isinstance(at, dict) else range(len(at))):
            key = rng.choice(keys)
            if isinstance(at[key], dict | list) and rng.random() < 0.88:
                at = at[key]
                continue
            what = rng.random()
            if what < 0.2:
                del at[key]
            elif what < 0.3 and isinstance(at, list):
                at.append(copy.deepcopy(at[key]))
            else:
                key = rng.choice(KEYS) if what < 0.4 and isinstance(at, dict) else key
                at[key] = copy.deepcopy(rng.choice(ODD))
            break
    return whole


def was(before, request):
    return Before(before, context(before, estate(), postures()), only_metadata_differs(request))


@pytest.mark.parametrize("seed", range(4))
def test_there_is_always_a_decision(seed):
    rng = random.Random(seed)
    engine = WasmEngine(shipped())
    for _ in range(600):
        request = damaged(rng.choice(REQUESTS), rng)
        lookup = StaticLookup(
            [damaged(o, rng) if rng.random() < 0.3 else o for o in OBJECTS], namespace="acme-train"
        )
        cluster = rng.choice(["train-us", "train-us", "train-eu", "nowhere"])
        found, before = facts(request, lookup, cluster=cluster), old_facts(request, lookup, cluster=cluster)
        slice_ = context(found, estate(), postures())
        engine_input(found, slice_, NOW)  # within the canonical domain
        old = partial(was, before, request) if before else None
        decision = decide(engine, shipped(), found, slice_, old, NOW)
        assert "engine.no_result" not in {r.rule for r in decision.reasons}
        assert all(r.text and r.path.isprintable() for r in (*decision.reasons, *decision.warnings))
    engine.close()
