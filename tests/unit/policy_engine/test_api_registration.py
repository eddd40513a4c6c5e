"""The registration that the documentation shows: valid, complete, and matching nothing that it must not."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy_engine.admission.judge import GOVERNED_DELETES
from policy_engine.resources.load import load

ROOT = Path(__file__).resolve().parents[3]
Json = dict[str, Any]
FIELDS = {
    "name",
    "failurePolicy",
    "timeoutSeconds",
    "sideEffects",
    "matchPolicy",
    "admissionReviewVersions",
    "clientConfig",
    "namespaceSelector",
    "rules",
    "matchConditions",
}
# Sent all the time by nodes and controllers: to ask for these would be to stand in the cluster's way.
PLUMBING = [
    "/events",
    "events.k8s.io/events",
    "coordination.k8s.io/leases",
    "discovery.k8s.io/endpointslices",
    "storage.k8s.io/volumeattachments",
    "storage.k8s.io/csinodes",
    "certificates.k8s.io/certificatesigningrequests",
]
PLUMBING_GROUPS = ["authentication.k8s.io", "authorization.k8s.io", "cilium.io", "crd.projectcalico.org"]


@pytest.fixture(scope="module")
def registration() -> Json:
    page = (ROOT / "docs/webhook.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (found,) = (block for block in blocks if block["kind"] == "ValidatingWebhookConfiguration")
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def entries(registration: Json) -> dict[str, Json]:
    return {entry["name"].partition(".")[0]: entry for entry in registration["webhooks"]}


def asked(entry: Json) -> set[tuple[str, str]]:
    """(operation, group/resource) of every rule."""
    return {
        (operation, f"{group}/{resource}")
        for rule in entry["rules"]
        for operation in rule["operations"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_it_is_a_configuration_that_an_api_server_takes(registration: Json, entries: dict[str, Json]) -> None:
    assert registration["apiVersion"] == "admissionregistration.k8s.io/v1"
    assert set(registration) == {"apiVersion", "kind", "metadata", "webhooks"}
    assert list(entries) == ["governed", "connect", "rest"]
    for entry in entries.values():
        assert set(entry) <= FIELDS
        assert set(entry) | {"matchConditions"} == FIELDS
        assert entry["name"].count(".") >= 2
        assert entry["sideEffects"] == "NoneOnDryRun"
        assert entry["matchPolicy"] == "Exact"
        assert entry["admissionReviewVersions"] == ["v1"]
        assert 1 <= entry["timeoutSeconds"] <= 30
        assert entry["clientConfig"]["url"].startswith("https://")
        base64.b64decode(entry["clientConfig"]["caBundle"], validate=True)
        for rule in entry["rules"]:
            assert set(rule) == {"apiGroups", "apiVersions", "operations", "resources"}
            assert "*" not in rule["resources"] or len(rule["resources"]) == 1
            assert set(rule["operations"]) <= {"CREATE", "UPDATE", "DELETE", "CONNECT"}


def test_governed_and_connect_fail_closed_and_rest_fails_open(entries: dict[str, Json]) -> None:
    policies = {name: entry["failurePolicy"] for name, entry in entries.items()}
    assert policies == {"governed": "Fail", "connect": "Fail", "rest": "Ignore"}
    assert ("CREATE", "*/*") in asked(entries["rest"])
    assert not any("*" in rule["apiGroups"] for rule in entries["governed"]["rules"])


def test_what_must_be_governed_is(entries: dict[str, Json]) -> None:
    governed = asked(entries["governed"])
    for name in ("pods", "pods/ephemeralcontainers", "pods/resize", "pods/binding", "services"):
        assert ("CREATE", f"/{name}") in governed
        assert ("UPDATE", f"/{name}") in governed
    for name in ("apps/deployments", "batch/jobs", "networking.k8s.io/ingresses", "/persistentvolumeclaims"):
        assert ("CREATE", name) in governed
    assert ("DELETE", "sluicegate.io/*") in governed


def test_deletes_are_those_that_a_delete_rule_names(entries: dict[str, Json]) -> None:
    deletes = {what for operation, what in asked(entries["governed"]) if operation == "DELETE"}
    named = {f"{group}/{kind.lower()}s" for group, kind in GOVERNED_DELETES}
    assert deletes == named | {"sluicegate.io/*"}
    for name in ("connect", "rest"):
        assert "DELETE" not in {operation for operation, _ in asked(entries[name])}


def test_connections_stand_in_an_entry_of_their_own(entries: dict[str, Json]) -> None:
    assert {operation for operation, _ in asked(entries["connect"])} == {"CONNECT"}
    for name in ("governed", "rest"):
        assert "CONNECT" not in {operation for operation, _ in asked(entries[name])}


def test_an_eviction_fails_open_and_only_services_show_their_status(entries: dict[str, Json]) -> None:
    assert ("CREATE", "/pods/eviction") in asked(entries["rest"])
    assert "/pods/eviction" not in {what for _, what in asked(entries["governed"])}
    every = {what for entry in entries.values() for _, what in asked(entry)}
    assert {what for what in every if what.endswith("/status")} == {"/services/status"}


def test_nothing_asks_about_plumbing(entries: dict[str, Json]) -> None:
    for name in ("governed", "connect"):
        for _, what in asked(entries[name]):
            assert what not in PLUMBING
            assert what.partition("/")[0] not in PLUMBING_GROUPS
    said = {one["name"]: one["expression"] for one in entries["rest"]["matchConditions"]}
    for what in PLUMBING:
        assert f'"{what}"' in said["not-plumbing"]
    for group in PLUMBING_GROUPS:
        assert f'"{group}"' in said["not-plumbing-groups"]


def test_rest_leaves_out_exactly_what_governed_asks(entries: dict[str, Json]) -> None:
    said = {one["name"]: one["expression"] for one in entries["rest"]["matchConditions"]}
    left_out = set(re.findall(r'"([^"]*/[^"]+)"', said["not-governed"]))
    governed = {
        what
        for operation, what in asked(entries["governed"])
        if operation != "DELETE" and what.count("/") == 1 and "*" not in what
    }
    assert left_out == governed
    assert '"sluicegate.io"' in said["not-plumbing-groups"]
    # The field is absent without a subresource, and an expression that fails skips an entry that fails open.
    assert said["not-governed"].startswith("(has(request.subResource) &&")


def test_the_selector_is_that_of_the_example_estate(entries: dict[str, Json]) -> None:
    declared = load(ROOT / "deploy/examples/estate").clusters["train-us"].platform_namespaces
    for entry in entries.values():
        (expression,) = entry["namespaceSelector"]["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert set(expression["values"]) == set(declared)
