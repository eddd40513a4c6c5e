"""Facts of public AI manifests and admission requests, against the answers that stand beside them."""

from __future__ import annotations

import json

import pytest
import yaml

from evidence.canonical import canonical
from policy_engine.facts import NoLookup, facts, request_for
from policy_engine.resources.manifests import read_manifests

pytestmark = pytest.mark.samples


def test_every_document_runs_exactly_the_images_that_were_read_by_hand(samples):
    answers = json.loads((samples / "workloads/pod-specs.json").read_text())["files"]
    checked = 0
    for name, entry in answers.items():
        data = (samples / "workloads" / name).read_bytes()
        found = {m.index: facts(m.request, NoLookup(), cluster="c") for m in read_manifests(data)}
        for document in entry["documents"]:
            checked += 1
            if document["kind"] is None:
                assert document["index"] not in found
                continue
            assert document["images"] == found[document["index"]]["images"], (name, document["index"])
    assert 199 == checked


def test_what_the_answers_call_incomplete_is_flagged(samples):
    answers = json.loads((samples / "workloads/pod-specs.json").read_text())["files"]
    for name, entry in answers.items():
        found = {
            m.index: facts(m.request, NoLookup(), cluster="c")
            for m in read_manifests((samples / "workloads" / name).read_bytes())
        }
        for document in entry["documents"]:
            for note in document.get("notes", []):
                drawn = found.get(document["index"])
                if "runtimeRef" in note or "clusterSelector" in note:
                    assert drawn["unresolved"], name
                if "inside a string" in note:
                    assert drawn["embedded"], name
                if "placeholder" in note:
                    assert drawn["unreadable"], name


def test_every_public_admission_request_has_facts(samples):
    count = 0
    for path in sorted((samples / "admission").glob("re*/*.json")):
        document = json.loads(path.read_text())
        request = document.get("request", document)
        canonical(facts(request, NoLookup(), cluster="c"))
        count += 1
    assert 133 == count


def test_the_flux_buckets_say_region_and_insecure(samples):
    folder = samples / "admission/requests"
    region = json.loads(
        (
            folder / "policies__FluxBucketApprovedRegion__test_data__test_invalid_bucket_region.json"
        ).read_text()
    )
    insecure = json.loads(
        (
            folder / "policies__FluxBucketInsecure__test_data__test_insecure_connection_violation.json"
        ).read_text()
    )
    assert ["eu-west-1"] == [s["region"] for s in facts(region, NoLookup(), cluster="c")["stores"]]
    assert [True] == [s["insecure"] for s in facts(insecure, NoLookup(), cluster="c")["stores"]]


def test_every_known_answer_object_has_facts(samples):
    for path in sorted((samples / "admission/known-answers").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            canonical(facts(request_for(document), NoLookup(), cluster="c"))
