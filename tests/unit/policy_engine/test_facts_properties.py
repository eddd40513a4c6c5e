"""Facts never raise and stay in the canonical domain, whatever JSON arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evidence.canonical import canonical
from policy_engine.context import context
from policy_engine.facts import NoLookup, facts, old_facts, request_for
from policy_engine.facts.extract import TYPED
from policy_engine.resources import ResourceSet

KEYS = [
    "spec", "template", "metadata", "annotations", "labels", "containers", "initContainers", "volumes", "image",
    "name", "env", "value", "resources", "limits", "nvidia.com/gpu", "affinity", "nodeAffinity", "nodeName",
    "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchExpressions", "matchFields",
    "key", "operator", "values", "nodeSelector", "csi", "volumeAttributes", "persistentVolumeClaim", "claimName",
    "sluicegate.io/datasets", "runtimeRef", "repository", "version", "endpoint", "bucketName", "target",
    "jobTemplate", "volumeClaimTemplates", "reference", "hostPath", "ephemeral", "volumeClaimTemplate", "rules",
]  # fmt: skip
VALUES = [
    "In",
    "a",
    "nginx@x:y",
    "none",
    "8",
    "AWS_ENDPOINT_URL",
    "http://x",
    "kind: Pod\n- image: a\ncontainers:",
]
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(VALUES)
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=30,
)
kinds = st.sampled_from(
    [*TYPED, ("", "Service"), ("x", "Ingress"), ("x", "Thing"), ("", "Binding"), ("", "Secret")]
)
EMPTY = ResourceSet([])


@given(json_values, kinds, st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", "", None]), json_values)
def test_any_json_has_facts_and_a_context(obj, kind, operation, old):
    request = {
        "kind": {"group": kind[0], "version": "v1", "kind": kind[1]},
        "operation": operation,
        "namespace": "n",
        "object": obj,
        "oldObject": old,
    }
    for drawn in (facts(request, NoLookup(), cluster="c"), old_facts(request, NoLookup(), cluster="c")):
        if drawn is not None:
            canonical(drawn)
            canonical(context(drawn, EMPTY, {}))


@given(
    st.dictionaries(
        st.text(max_size=8) | st.sampled_from(["kind", "operation", "object", "userInfo"]), json_values
    )
)
def test_any_request_has_facts(request):
    canonical(facts(request, NoLookup(), cluster="c"))


@given(json_values, kinds)
def test_a_pod_spec_of_anything_has_facts(spec, kind):
    template = {"metadata": {}, "spec": spec}
    obj = {"kind": kind[1], "apiVersion": f"{kind[0]}/v1".lstrip("/"), **template}
    steps = TYPED.get(kind, ())
    inner = template
    for step in reversed(steps):
        inner = {step: inner}
    canonical(facts(request_for({**obj, **inner}), NoLookup(), cluster="c"))
