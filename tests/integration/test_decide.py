"""Decisions of the running system: the example reviews, the ledger, credentials."""

import json
import subprocess
import sys
import time
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


def test_what_cannot_be_rotated_is_refused_with_a_reason(system):
    for name, status in (("gcp-aws-legacy", 400), ("nope", 404)):
        reply = system.api(f"/v1/links/{name}/rotate", {})
        assert (status, True) == (reply.status, bool(reply.body.get("fix"))), reply


def test_a_tenants_viewer_sees_its_own_and_no_process(system):
    """A token over one tenant: its links, its scope, its decisions; nothing of the other's."""
    from policy_engine import grants
    from policy_engine.demo.client import Https as Door

    database = _open(system)
    try:
        now = 1_796_000_000_000_000_000

        def issue(conn):
            grants.add_grant(conn, "local", "gil", "viewer", "globex", by="test", now_ns=now)
            return grants.issue_token(conn, "local", "gil", label="t", by="test", now_ns=now, days=300).token

        token = database.write_sync(issue)
    finally:
        database.stop()
    door = Door(_address(system.endpoints["api"]), Path(system.endpoints["ca"]), token=token)
    assert {"cw-gcp-1", "gcp-aws-legacy"} == {link["link"] for link in door.get("/v1/links").body["links"]}
    assert 404 == door.get("/v1/links/cw-aws-1").status
    assert ["globex"] == [scope["name"] for scope in door.get("/v1/scopes").body["scopes"]]
    assert 404 == door.get("/v1/records?scope=acme").status
    assert 403 == door.post("/v1/links/cw-gcp-1/rotate", {}).status
    assert not {"processes", "state"} & set(door.get("/v1/status").body)
    request = review(system, "compliant")["request"]
    assert 404 == door.post("/v1/decide", {"cluster": "train-us", "request": request}).status
    own = review(system, "tenant-segment")["request"]
    mine = system.api("/v1/decide", {"cluster": "train-us", "request": own})
    assert (200, False) == (mine.status, mine.body["allowed"])


def test_a_package_exported_over_the_api_verifies_against_the_trust_root(system):
    """Asked of the control plane, made by a process that ends, signed over a session of its own."""
    wait((system.state / "trust.json").exists, 10, "the trust root is written")
    system.review("train-us", review(system, "compliant"))
    window = {"tenant": "acme", "start_ns": "1740787200000000000", "end_ns": str(time.time_ns())}
    made = system.api("/v1/packages", window)
    assert 201 == made.status, made
    listed = system.api("/v1/packages").body["packages"]
    assert [made.body] == [one for one in listed if one["file"] == made.body["file"]]
    package = system.state / "packages" / made.body["file"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "policy_engine.demo.offline", "evidence", "verify", str(package)),
            *("--trust", str(system.state / "trust.json")),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    assert "faults enabled" in done.stdout.splitlines()[0]


def test_a_package_that_cannot_be_made_as_asked_is_refused_and_not_called_an_outage(system):
    hour = 3_600_000_000_000
    later = {"start_ns": str(time.time_ns() + hour), "end_ns": str(time.time_ns() + 2 * hour)}
    reply = system.api("/v1/packages", {"tenant": "acme"} | later)
    assert 409 == reply.status, reply
    assert "export failed: the window has not begun" == reply.body["detail"]


def _open(system):
    from evidence.database import Database

    database = Database(system.state / "sluicegate.db")
    database.start()
    return database
