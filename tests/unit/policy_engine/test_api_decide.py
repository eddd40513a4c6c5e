"""`POST /v1/decide` over the services that are served: the real judge, engine and example estate."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from admission_world import DATASETS, SITE, World, pod, review
from fastapi.testclient import TestClient
from sqlalchemy import Connection

from evidence.database import Database
from keymgmt.errors import RotationRefused
from keymgmt.scheduler import never_keyed
from policy_engine import grants
from policy_engine.api import create_api
from policy_engine.api_shapes import DecisionOut, LinkOut
from policy_engine.embedded.services import EmbeddedServices
from policy_engine.errors import UsageError
from policy_engine.grants import Grant, Principal, Reach

Json = dict[str, Any]
NOW = 1_800_000_000_000_000_000


def job(**metadata: Any) -> Json:
    """A Job whose pods are the ones of `pod`."""
    inner = pod()
    template = {"metadata": {"annotations": inner["metadata"]["annotations"]}, "spec": inner["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nightly", **metadata},
        "spec": {"template": template},
    }


def volume() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "scratch"},
        "spec": {"hostPath": {"path": "/x"}},
    }


class Unkeyed:
    """A conductor and a gate that know of no link."""

    async def status(self, _link: str) -> NoReturn:
        raise RotationRefused("not keyed here")

    def shown(self, _link: str) -> None:
        return None

    def judged(self, _link: str) -> None:
        return None


class Door:
    """A client of the API, as somebody with one grant."""

    def __init__(self, client: TestClient, services: EmbeddedServices) -> None:
        self.client = client
        self.services = services
        self.database = services.database

    def ask(self, body: Any, *, tenant: str = "acme", cluster: str = "train-us") -> Any:
        sub = f"v-{tenant}".replace("*", "all")

        def write(conn: Connection) -> str:
            grants.add_grant(conn, "local", sub, "viewer", tenant, by="t", now_ns=NOW)
            return grants.issue_token(conn, "local", sub, label="", by="t", now_ns=NOW, days=1).token

        headers = {"authorization": f"Bearer {self.database.write_sync(write)}"}
        return self.client.post("/v1/decide", json={"cluster": cluster, **body}, headers=headers)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    database = Database(tmp_path / "api.db")
    database.start()
    database.create_all()
    world = World(tmp_path)
    absent, unkeyed = cast("Any", None), cast("Any", Unkeyed())
    services = EmbeddedServices(
        database=database,
        ledger=absent,
        conductor=unkeyed,
        gate=unkeyed,
        admission=world.deps(),
        tenants_of=dict,
        bare=lambda: {"gcp-aws-legacy": "none"},
        describe=dict,
        not_ready=dict,
        key_store_away=str,
        reload_identities=lambda: None,
        state=tmp_path,
    )
    with TestClient(create_api(services, clock=lambda: NOW), raise_server_exceptions=False) as client:
        yield Door(client, services)
    database.stop()


@pytest.mark.parametrize("manifest", [pod(), job()], ids=["Pod", "Job"])
@pytest.mark.parametrize("inside", [True, False], ids=["its own namespace", "the given one"])
@pytest.mark.parametrize("tenant", ["acme", "*"])
def test_a_manifest_is_judged_as_if_it_were_created(
    door: Door, manifest: Json, inside: bool, tenant: str
) -> None:
    where: Json = {"object": manifest, "namespace": "acme-train"}
    if inside:
        where = {"object": {**manifest, "metadata": {**manifest["metadata"], "namespace": "acme-train"}}}
    answer = door.ask(where, tenant=tenant)
    assert answer.status_code == 200, answer.text
    assert answer.json()["allowed"] is True
    assert answer.json()["reasons"] == []


def test_a_manifest_is_refused_for_the_reasons_that_the_webhook_gives(door: Door) -> None:
    bad = pod(annotations={DATASETS: "nobodys-corpus"})
    by_object = door.ask({"object": bad, "namespace": "acme-train"}).json()
    by_request = door.ask({"request": review(bad)["request"]}).json()
    assert by_object["allowed"] is False
    assert [r["rule"] for r in by_object["reasons"]] == ["tenancy.dataset"]
    assert by_object["reasons"] == by_request["reasons"]


def test_without_any_namespace_it_goes_to_default(door: Door) -> None:
    assert door.ask({"object": pod()}).status_code == 404, "default is bound to nobody"
    answer = door.ask({"object": pod()}, tenant="*")
    assert answer.status_code == 200
    assert answer.json()["allowed"] is False
    assert "unbound" in {r["rule"] for r in answer.json()["reasons"]}


def test_what_stands_in_no_namespace(door: Door) -> None:
    assert door.ask({"object": volume()}, tenant="*").status_code == 200
    refused = door.ask({"object": volume()})
    assert refused.status_code == 404
    assert "role over *" in refused.json()["fix"]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme-train"}}
    assert door.ask({"object": space}).json()["allowed"] is True


def test_a_request_needs_no_uid(door: Door) -> None:
    request = review(pod())["request"]
    for uid in ({}, {"uid": ""}, {"uid": "u-1"}):
        without = {key: value for key, value in request.items() if key != "uid"}
        assert door.ask({"request": {**without, **uid}}).json()["allowed"] is True


def test_an_unknown_cluster_gets_the_nearest_name(door: Door) -> None:
    answer = door.ask({"object": pod(), "namespace": "acme-train"}, tenant="*", cluster="train-su")
    assert (answer.status_code, answer.json()["fix"]) == (404, 'did you mean "train-us"?')
    hidden = door.ask({"object": pod(), "namespace": "acme-train"}, cluster="train-su")
    assert (hidden.status_code, hidden.json()["detail"]) == (404, "no such namespace in reach")


def _without(manifest: Json, *names: str) -> Json:
    return {key: value for key, value in manifest.items() if key not in names}


WRONG: list[tuple[Json, list[str]]] = [
    ({"object": {}}, ["object.apiVersion", "object.kind", "object.metadata"]),
    ({"object": _without(pod(), "apiVersion")}, ["object.apiVersion"]),
    ({"object": {**pod(), "apiVersion": "a/b/c"}}, ["object.apiVersion"]),
    ({"object": {**pod(), "kind": 7}}, ["object.kind"]),
    ({"object": {**pod(), "metadata": []}}, ["object.metadata"]),
    ({"object": {**pod(), "metadata": {}}}, ["object.metadata.name"]),
    ({"object": {**pod(), "metadata": {"name": ["x"]}}}, ["object.metadata.name"]),
    ({"object": {**pod(), "metadata": {"name": "x", "namespace": "No Such"}}}, ["object.metadata.namespace"]),
    ({"object": job(namespace="acme-train"), "namespace": "other"}, ["object.metadata.namespace"]),
    ({"object": _without(pod(), "spec")}, ["object.spec"]),
    ({"object": {**job(), "spec": {"template": "x"}}}, ["object.spec.template"]),
    ({"object": {**job(), "spec": {"template": {"spec": []}}}}, ["object.spec.template.spec"]),
    ({"object": {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []}}, ["object.items"]),
    ({"object": review(pod())}, ["object.kind"]),
    ({"object": {**volume(), "metadata": {"name": "v", "namespace": "x"}}}, ["object.metadata.namespace"]),
    ({"request": review(pod())}, ["request.kind"]),
    ({"request": {}}, ["request.kind"]),
    ({"request": {**review(pod())["request"], "operation": "PATCH"}}, ["request.operation"]),
    ({"request": {**review(pod())["request"], "uid": 7}}, ["request.uid"]),
    ({"request": {**review(pod())["request"], "oldObject": [1]}}, ["request.oldObject"]),
    ({"object": pod(), "namespace": "No Such"}, ["namespace"]),
    ({"request": review(pod())["request"], "namespace": "acme-train"}, ["namespace"]),
]


@pytest.mark.parametrize(("body", "paths"), WRONG)
def test_what_cannot_be_asked_is_one_422_with_the_path(door: Door, body: Json, paths: list[str]) -> None:
    answer = door.ask(body)
    assert answer.status_code == 422, answer.text
    seen = [error["at"].removeprefix("body.") for error in answer.json()["errors"]]
    assert all(path in seen for path in paths), seen
    assert all(error["message"] for error in answer.json()["errors"])


def test_an_object_without_end_is_no_internal_error(door: Door) -> None:
    spec: Json = {}
    for _ in range(400):
        spec = {"a": spec}
    answer = door.ask({"object": {**pod(), "spec": spec}, "namespace": "acme-train"})
    assert answer.status_code in (200, 400)


def test_a_pod_without_a_site_is_judged_over_every_site(door: Door) -> None:
    free = pod(site=None)
    assert SITE not in free["spec"]["nodeSelector"]
    assert door.ask({"object": free, "namespace": "acme-train"}).status_code == 200


async def test_a_link_that_nothing_keys_is_explained_in_one_text(door: Door) -> None:
    root = Principal("local", "root", (Grant("operator", "*"),))
    with pytest.raises(UsageError) as refused:
        await door.services.rotate("gcp-aws-legacy", root)
    why = never_keyed("none")
    assert str(refused.value) == f"gcp-aws-legacy: {why.detail}"
    assert refused.value.fix == why.next
    shown = await door.services.link("gcp-aws-legacy", Reach(every=True))
    assert shown["why"] == {"check": why.check, "detail": why.detail, "next": why.next}


async def test_answers_have_the_forms_that_are_described(door: Door) -> None:
    for manifest in (pod(), pod(annotations={DATASETS: "nobodys-corpus"})):
        answer = door.ask({"object": manifest, "namespace": "acme-train"})
        shown = DecisionOut.model_validate_json(answer.content)
        assert shown.model_extra == {}
        assert all(reason.model_extra == {} for reason in shown.reasons)
    link = await door.services.link("gcp-aws-legacy", Reach(every=True))
    assert LinkOut.model_validate_json(json.dumps(link)).why.check == "encryption"
