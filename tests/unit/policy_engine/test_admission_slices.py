"""A kept context is what would be made: its key holds all that is read, and nothing that it rests on is older."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from admission_world import DATASETS, SEGMENTS, SITE, parts, pod
from rules_world import example_requests, postures

from policy_engine.admission import slices
from policy_engine.admission.slices import Slices, key_of
from policy_engine.context import context
from policy_engine.facts import NoLookup, facts, request_for
from policy_engine.rules.engine import Prepared

RESOURCES = parts()[0]
LINKS = postures()
TERM = {"matchExpressions": [{"key": SITE, "operator": "In", "values": ["cw-us-east"]}]}
NEEDED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}


def drawn(obj: dict[str, Any], *, namespace: str = "acme-train", cluster: str = "train-us") -> dict[str, Any]:
    return facts(request_for(obj, namespace=namespace), NoLookup(), cluster=cluster)


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {"template": {k: v for k, v in pod(site="cw-us-east").items() if k in {"metadata", "spec"}}},
}
FACTS = {
    "pod": drawn(pod()),
    "another site": drawn(pod(site="cw-us-east")),
    "no site": drawn(pod(site=None)),
    "affinity": drawn(pod(site=None, affinity={"nodeAffinity": NEEDED})),
    "a node": drawn(pod(site=None, nodeName="n1")),
    "foreign data": drawn(pod(annotations={DATASETS: "eu-patients"})),
    "a segment": drawn(pod(annotations={SEGMENTS: "acme-tokens"})),
    "nothing declared": drawn(pod(annotations={})),
    "another kind": drawn(JOB),
    "another namespace": drawn(pod(), namespace="globex-train"),
    "no binding": drawn(pod(), namespace="unheard-of"),
    "platform": drawn(pod(), namespace="kube-system"),
    "another cluster": drawn(pod(), cluster="train-eu"),
    "no cluster": drawn(pod(), cluster="nowhere"),
}


def rebuilt(key: bytes) -> dict[str, Any]:
    """Facts that hold what the key holds and nothing else."""
    cluster, namespace, group, kind, path, placement, datasets, segments = orjson.loads(key)
    subject = {"cluster": cluster, "namespace": namespace, "group": group, "kind": kind}
    one = {"path": path, "placement": placement, "datasets": datasets, "segments": segments}
    return {"subject": subject, "pods": [one]}


@pytest.mark.parametrize("name", FACTS)
def test_the_key_holds_all_that_a_context_is_made_of(name: str) -> None:
    key = key_of(FACTS[name])
    assert key is not None
    assert context(FACTS[name], RESOURCES, LINKS) == context(rebuilt(key), RESOURCES, LINKS)


def test_the_keys_of_every_example_hold_it_too() -> None:
    keys = 0
    for _, request in example_requests():
        found = facts(request, NoLookup(), cluster="train-us")
        key = key_of(found)
        if key is not None:
            keys += 1
            assert context(found, RESOURCES, LINKS) == context(rebuilt(key), RESOURCES, LINKS)
    assert keys


def test_kept_or_made_it_is_the_same() -> None:
    kept = Slices()
    for _ in range(2):
        for found in FACTS.values():
            assert kept.of(found, RESOURCES, LINKS) == context(found, RESOURCES, LINKS)
    assert len(kept._made) == len(FACTS)
    first = kept.of(FACTS["pod"], RESOURCES, LINKS)
    assert type(first) is Prepared
    assert kept.of(FACTS["pod"], RESOURCES, LINKS) is first


def test_another_posture_of_a_link_that_it_names_makes_it_anew_and_no_other_does() -> None:
    kept = Slices()
    far = kept.of(FACTS["another site"], RESOURCES, LINKS)
    (link,) = far["links"]
    others = {name: replace(posture, generation=posture.generation + 1) for name, posture in LINKS.items()}
    assert kept.of(FACTS["another site"], RESOURCES, {**others, link: LINKS[link]}) is far
    for changed in ({**LINKS, link: others[link]}, {n: p for n, p in LINKS.items() if n != link}):
        made = kept.of(FACTS["another site"], RESOURCES, changed)
        assert made is not far
        assert made == context(FACTS["another site"], RESOURCES, changed)


def test_another_set_of_resources_makes_it_anew_even_with_the_same_digest() -> None:
    kept = Slices()
    old = kept.of(FACTS["pod"], RESOURCES, LINKS)
    later = RESOURCES.with_generation(RESOURCES.generation + 1)
    assert kept.of(FACTS["pod"], later, LINKS) is not old
    assert kept.of(FACTS["pod"], RESOURCES, LINKS) is not old


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_KEPT", 8)
    kept = Slices()
    for number in range(50):
        kept.of(drawn(pod(), namespace=f"team-{number}"), RESOURCES, LINKS)
        assert len(kept._made) <= 8
    wide = drawn(pod(annotations={DATASETS: ",".join(f"{'d' * 100}{n}" for n in range(60))}))
    assert kept.of(wide, RESOURCES, LINKS) == context(wide, RESOURCES, LINKS)
    assert key_of(wide) not in kept._made


def test_several_pods_or_a_target_are_made_each_time() -> None:
    exec_ = {"kind": {"group": "", "version": "v1", "kind": "PodExecOptions"}, "operation": "CONNECT"}
    found = facts(
        {**exec_, "namespace": "acme-train", "name": "p", "subResource": "exec"},
        NoLookup(),
        cluster="train-us",
    )
    assert key_of(found) is None
    two = {**FACTS["pod"], "pods": [*FACTS["pod"]["pods"], *FACTS["another site"]["pods"]]}
    assert key_of(two) is None
    kept = Slices()
    assert kept.of(two, RESOURCES, LINKS) == context(two, RESOURCES, LINKS)
    assert not kept._made
