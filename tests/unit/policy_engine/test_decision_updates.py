"""Updates, judged whole: facts, context and the shipped rules on both sides; what is new is new."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace

import pytest
from facts_help import pod
from rules_world import NOW, estate, postures, shipped

from policy_engine.context import context
from policy_engine.facts import NoLookup, facts, old_facts, only_metadata_differs, request_for
from policy_engine.inventory.static import StaticLookup
from policy_engine.limits import LIMITS
from policy_engine.rules.decision import Before, decide
from policy_engine.rules.wasm import WasmEngine

NONE = {"sluicegate.io/datasets": "none"}


@functools.cache
def engine():
    return WasmEngine(shipped())


def judged(request, lookup=None):
    lookup = lookup or NoLookup()
    found = facts(request, lookup, cluster="train-us")
    before = old_facts(request, lookup, cluster="train-us")
    slice_before = None if before is None else context(before, estate(), postures())
    old = None if before is None else lambda: Before(before, slice_before, only_metadata_differs(request))
    return decide(
        engine(),
        shipped(),
        found,
        context(found, estate(), postures()),
        old,
        NOW,
    )


def update(new, old, **request):
    return judged({**request_for(new), "operation": "UPDATE", "oldObject": old, **request})


def clear(container="main"):
    """A container that talks in the clear."""
    env = [{"name": "HF_ENDPOINT", "value": "http://hub.example"}]
    return {"containers": [{"name": container, "image": "x/y:1", "env": env}]}


def job_set(**jobs):
    """Replicated jobs by name: (dataset, PodSpec)."""

    def one(name, dataset, spec):
        template = {"metadata": {"annotations": {"sluicegate.io/datasets": dataset}}, "spec": spec}
        return {"name": name, "template": {"spec": {"template": template}}}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j", "namespace": "acme-train"},
        "spec": {"replicatedJobs": [one(name, *job) for name, job in jobs.items()]},
    }


PLAIN = pod()["spec"]
BAD = ("eu-patients", PLAIN)  # may not be read here
GOOD = ("none", PLAIN)


def test_another_order_is_no_new_violation():
    decision = update(job_set(b=GOOD, a=BAD), job_set(a=BAD, b=GOOD))
    assert decision.allowed
    assert {"residency.region"} == {w.rule for w in decision.warnings}
    assert {"spec.replicatedJobs[a].template.spec.template.spec"} == {w.subject for w in decision.warnings}
    assert all(w.path.startswith("spec.replicatedJobs[1].") for w in decision.warnings)  # where it stands now


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (job_set(a=BAD, c=BAD), job_set(a=BAD, b=GOOD)),
        (job_set(c=BAD, a=BAD), job_set(a=BAD)),
        (job_set(c=BAD), job_set(a=BAD)),
        # The same container name in another pod.
        (job_set(a=("none", clear()), b=("none", clear())), job_set(a=("none", clear()), b=GOOD)),
    ],
)
def test_a_further_pod_that_violates_is_denied(new, old):
    decision = update(new, old)
    assert not decision.allowed
    assert not any("[a]" in reason.subject for reason in decision.reasons)


@pytest.mark.parametrize("subresource", ["", "ephemeralcontainers", "resize", "flumox"])
def test_a_subresource_makes_no_difference_to_what_is_added(subresource):
    old = pod(annotations=NONE)
    for change in (
        {"ephemeralContainers": clear("debug")["containers"]},
        {"ephemeralContainers": [{"name": "debug", "image": "nginx@x:y"}]},
    ):
        new = copy.deepcopy(old)
        new["spec"].update(change)
        assert not update(new, old, subResource=subresource).allowed


def test_an_object_older_than_the_policy_can_be_cleaned_up_but_not_made_worse():
    old = pod({"containers": [{"name": "m", "image": "nginx@x:y"}]}, annotations=NONE, finalizers=["a/b"])
    for change in ({"finalizers": []}, {"labels": {"a": "b"}}, {"finalizers": None, "labels": {}}):
        new = copy.deepcopy(old)
        new["metadata"].update(change)
        decision = update(new, old)
        assert decision.allowed
        assert ["facts.unreadable"] == [w.rule for w in decision.warnings]
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {**NONE, "x": "y"}
    assert not update(new, old).allowed
    new = copy.deepcopy(old)
    new["spec"]["hostNetwork"] = True
    assert not update(new, old).allowed


def test_what_is_unreadable_may_hide_a_change():
    # Both are "a list is due here": the same facts, not the same object.
    old, new = (pod({"containers": value}, annotations=NONE) for value in ("x", "y"))
    assert not update(new, old).allowed


@pytest.mark.parametrize("odd", [None, [], "x", 7])
def test_odd_metadata_is_compared_and_never_a_crash(odd):
    assert only_metadata_differs({"object": {"metadata": odd}, "oldObject": {"metadata": odd}})
    assert not only_metadata_differs({"object": {"metadata": odd}, "oldObject": {"metadata": {}}})
    assert not only_metadata_differs({"object": odd, "oldObject": odd})


def test_a_refusal_does_not_say_what_stands_behind_a_claim():
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv", "annotations": {"sluicegate.io/datasets": "foreign-name"}},
    }
    template = {"spec": {"volumeName": "pv"}}
    obj = pod({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]}, annotations=NONE)
    (reason,) = judged(request_for(obj), StaticLookup([volume])).reasons
    assert "tenancy.dataset" == reason.rule
    assert "PersistentVolume pv" in reason.text
    assert "foreign-name" not in f"{reason}"


def test_more_paths_than_can_be_judged_are_refused(monkeypatch):
    monkeypatch.setattr("policy_engine.context.LIMITS", replace(LIMITS, context_reads=10))
    decision = judged(request_for(job_set(**{f"j{i}": ("us-corpus", PLAIN) for i in range(10)})))
    assert not decision.allowed
    assert {"facts.unreadable", "engine.no_result"} == {r.rule for r in decision.reasons}
