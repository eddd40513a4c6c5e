"""Decisions of the running system: the example reviews, the ledger, credentials."""

import json
from pathlib import Path

import pytest
from running_system import wait

from policy_engine.demo.chapters_start import REVIEWS, review
from policy_engine.demo.client import Https
from policy_engine.demo.stage import _address

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("file", "cluster", "text", "rule"), REVIEWS, ids=[r[0] for r in REVIEWS])
def test_the_example_reviews_are_answered_as_the_readme_says(system, file, cluster, text, rule):
    response = system.review(cluster, review(system, file))
    assert (not rule) == response["allowed"], response
    assert f"[{rule}]" in response["status"]["message"] if rule else "status" not in response


def test_an_answered_decision_stands_in_its_tenants_ledger(system):
    response = system.review("train-us", review(system, "compliant"))
    wanted = next(v for k, v in response["auditAnnotations"].items() if k.startswith("decision."))
    leaf = next(v for k, v in response["auditAnnotations"].items() if k.startswith("leaf."))

    def found():
        page = system.api("/v1/records?kind=decision&scope=acme&limit=1000").body["records"]
        return [r["leaf_hash"] for r in page if r["public"]["decision_id"] == wanted] == [leaf]

    wait(found, 5, "the decision is in the ledger once, with the leaf hash that was answered")


def test_no_credential_and_another_clusters_credential_are_refused(system):
    ca = Path(system.endpoints["ca"])
    body = review(system, "compliant")
    assert 401 == Https(_address(system.endpoints["admission"]), ca).post("/admit/train-us", body).status
    pair = system.endpoints["clusters"]["train-eu"]
    other = Https(_address(system.endpoints["admission"]), ca, client=(Path(pair["cert"]), Path(pair["key"])))
    assert 403 == other.post("/admit/train-us", body).status


def test_a_path_token_is_a_credential_of_its_cluster_only(system):
    ca = Path(system.endpoints["ca"])
    token = (system.state / "tokens" / "train-us.path-token").read_text()
    door = Https(_address(system.endpoints["admission"]), ca)
    body = review(system, "compliant")
    assert 200 == door.post(f"/admit/train-us/{token}", body).status
    assert 403 == door.post(f"/admit/train-eu/{token}", body).status


def test_the_api_has_no_anonymous_write_and_documents_itself(system):
    door = Https(_address(system.endpoints["api"]), Path(system.endpoints["ca"]))
    assert 401 == door.post("/v1/links/cw-gcp-1/rotate", {}).status
    assert 401 == door.get("/v1/links").status
    assert 200 == door.get("/docs").status
    assert 200 == door.get("/healthz").status
    assert 200 == door.get("/readyz").status


def test_status_says_plainly_what_this_mode_is(system):
    status = system.api("/v1/status").body
    assert ("embedded (not separated)", "self-asserted", "enabled") == (
        status["custody"],
        status["evidence"],
        status["faults"],
    )
    assert "faults_enabled" in json.dumps(
        [r["header"]["kind"] for r in system.api("/v1/records?kind=faults_enabled").body["records"]]
    )
