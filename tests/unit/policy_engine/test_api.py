"""The API: no anonymous write, nothing outside the caller's reach, no value comes back in an error."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Connection

from evidence.database import Database
from evidence.errors import StoreUnavailable
from policy_engine import grants
from policy_engine.api import create_api
from policy_engine.api_problems import Problem
from policy_engine.errors import Forbidden, InvalidGrant, NotFound, Unauthenticated
from policy_engine.grants import Principal, Reach

NOW = 1_800_000_000_000_000_000
DAY = 86_400 * 10**9


class FakeServices:
    """Two links, two tenants. Leaves out everything that waits for another process."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.missing: dict[str, str] = {}
        self.rotated: list[tuple[str, str]] = []
        self.reloads = 0
        self.explode: Exception | None = None

    def status(self, reach: Reach) -> dict[str, Any]:
        if self.explode is not None:
            raise self.explode
        return {"every": reach.every, "tenants": sorted(reach.tenants)}

    def ready(self) -> dict[str, str]:
        return self.missing

    async def links(self, reach: Reach) -> list[dict[str, Any]]:
        owners = {"cw-gcp-1": "acme", "cw-aws-1": "globex"}
        return [{"name": name} for name, tenant in owners.items() if reach.covers(tenant)]

    async def link(self, name: str, reach: Reach) -> dict[str, Any]:
        if name != "cw-gcp-1" or not reach.covers("acme"):
            raise NotFound("no such link")
        return {"name": name}

    async def rotate(self, name: str, by: Principal) -> dict[str, Any]:
        self.rotated.append((name, by.name))
        return {"rotation": "r1", "link": name}

    async def decide(self, cluster: str, request: dict[str, Any], reach: Reach) -> dict[str, Any]:
        return {"cluster": cluster, "allowed": True, "kind": request["kind"]["kind"]}

    async def records(self, reach: Reach, **query: Any) -> dict[str, Any]:
        return {
            "records": [],
            "next": None,
            "sensitive": query["sensitive"],
            "tenants": sorted(reach.tenants),
        }

    async def scopes(self, reach: Reach) -> list[dict[str, Any]]:
        return [{"name": name} for name in ("acme", "estate", "globex") if reach.covers_scope(name)]

    async def packages(self, reach: Reach) -> list[dict[str, Any]]:
        return []

    async def export_package(self, tenant: str, start_ns: int, end_ns: int, by: Principal) -> dict[str, Any]:
        return {"tenant": tenant, "octets": end_ns - start_ns}

    def tenants(self) -> list[str]:
        return ["acme", "globex"]

    def clusters(self) -> list[str]:
        return ["train-us", "train-eu"]

    async def identities_changed(self) -> None:
        self.reloads += 1


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    db = Database(tmp_path / "api.db")
    db.start()
    db.create_all()
    yield db
    db.stop()


@pytest.fixture
def services(database: Database) -> FakeServices:
    return FakeServices(database)


@pytest.fixture
def app(services: FakeServices) -> FastAPI:
    return create_api(services, clock=lambda: NOW)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def token(database: Database, sub: str, *roles: tuple[str, str], days: int = 30, now_ns: int = NOW) -> str:
    def write(conn: Connection) -> str:
        for role, tenant in roles:
            grants.add_grant(conn, "local", sub, role, tenant, by="test", now_ns=now_ns)
        return grants.issue_token(conn, "local", sub, label="", by="test", now_ns=now_ns, days=days).token

    return database.write_sync(write)


def auth(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def test_probes_and_the_description_are_the_only_anonymous_routes(app: FastAPI, client: TestClient) -> None:
    anonymous = set()
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method in methods:
            url = (
                path.replace("{name}", "cw-gcp-1")
                .replace("{token_id}", "0" * 16)
                .replace("{grant_id}", "0" * 16)
            )
            status = client.request(method, url, json={} if method == "post" else None).status_code
            if status not in (401, 422) or (method == "get" and status == 422):
                anonymous.add((method, path))
            assert status in (200, 401, 422), (method, path, status)
    assert anonymous == {("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics")}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/v1/links/cw-gcp-1/rotate", None),
        ("post", "/v1/decide", {"cluster": "train-us", "request": {}}),
        ("post", "/v1/tokens", {"sub": "eve"}),
        ("delete", "/v1/tokens/0123456789abcdef", None),
        ("post", "/v1/grants", {"sub": "eve", "role": "admin", "tenant": "*"}),
        ("delete", "/v1/grants/0123456789abcdef", None),
        ("post", "/v1/clusters/train-us/path-tokens", {}),
        ("post", "/v1/packages", {"tenant": "acme", "start_ns": "1", "end_ns": "2"}),
    ],
)
def test_a_write_without_a_token_is_refused(client: TestClient, method: str, path: str, body: Any) -> None:
    answer = client.request(method, path, json=body)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_viewer_of_one_tenant_sees_that_tenant_only(client: TestClient, database: Database) -> None:
    acme = auth(token(database, "ann", ("viewer", "acme")))
    assert client.get("/v1/links", headers=acme).json() == {"links": [{"name": "cw-gcp-1"}]}
    assert client.get("/v1/scopes", headers=acme).json() == {"scopes": [{"name": "acme"}]}
    globex = auth(token(database, "gus", ("viewer", "globex")))
    assert client.get("/v1/links/cw-gcp-1", headers=globex).status_code == 404
    foreign, absent = (client.get(f"/v1/links/{n}", headers=globex).json() for n in ("cw-gcp-1", "nowhere"))
    assert foreign == absent


def test_links_are_shared_so_rotating_needs_a_role_over_every_tenant(
    client: TestClient, database: Database, services: FakeServices
) -> None:
    url = "/v1/links/cw-gcp-1/rotate"
    assert client.post(url, headers=auth(token(database, "v", ("viewer", "*")))).status_code == 403
    assert client.post(url, headers=auth(token(database, "o", ("operator", "acme")))).status_code == 403
    assert client.post(url, headers=auth(token(database, "p", ("operator", "*")))).status_code == 202
    assert services.rotated == [("cw-gcp-1", "local#p")]


def test_sensitive_parts_only_for_auditors_of_the_tenant(client: TestClient, database: Database) -> None:
    both = auth(token(database, "kim", ("viewer", "globex"), ("auditor", "acme")))
    answer = client.get("/v1/records", headers=both).json()
    assert answer["sensitive"] is True
    assert answer["tenants"] == ["acme"], "the auditor's reach, not the viewer's"
    public = client.get("/v1/records?scope=globex", headers=both).json()
    assert (public["sensitive"], public["tenants"]) == (False, ["acme", "globex"]), "a viewer there"
    assert client.get("/v1/records?scope=acme", headers=both).json()["sensitive"] is True
    viewer = client.get("/v1/records", headers=auth(token(database, "lee", ("viewer", "globex")))).json()
    assert (viewer["sensitive"], viewer["tenants"]) == (False, ["globex"])


def test_a_package_of_another_tenant_does_not_exist(client: TestClient, database: Database) -> None:
    headers = auth(token(database, "aud", ("auditor", "acme")))
    body = {"tenant": "globex", "start_ns": "1", "end_ns": "2"}
    assert client.post("/v1/packages", json=body, headers=headers).status_code == 404
    assert client.post("/v1/packages", json={**body, "tenant": "acme"}, headers=headers).status_code == 201
    empty = {"tenant": "acme", "start_ns": "2", "end_ns": "2"}
    assert client.post("/v1/packages", json=empty, headers=headers).status_code == 400


def test_a_token_is_shown_once_stored_hashed_expires_and_is_revoked(
    client: TestClient, database: Database
) -> None:
    admin = auth(token(database, "root", ("admin", "*")))
    issued = client.post("/v1/tokens", json={"sub": "bob", "days": 1}, headers=admin).json()
    text = issued["token"]
    assert text not in client.get("/v1/tokens", headers=admin).text
    rows = database.read_sync(
        lambda c: [bytes(r[0]) for r in c.exec_driver_sql("SELECT digest FROM api_token")]
    )
    assert hashlib.sha256(text.encode()).digest() in rows
    raw = Path(database.url.removeprefix("sqlite:///"))
    stored = b"".join(path.read_bytes() for path in raw.parent.glob(raw.name + "*"))
    assert text.encode() not in stored
    assert client.get("/v1/whoami", headers=auth(text)).json()["sub"] == "bob"
    with pytest.raises(Unauthenticated):
        database.read_sync(lambda conn: grants.principal_of(conn, text, NOW + DAY))
    assert client.delete(f"/v1/tokens/{issued['id']}", headers=admin).status_code == 204
    assert client.get("/v1/whoami", headers=auth(text)).status_code == 401
    assert client.delete(f"/v1/tokens/{issued['id']}", headers=admin).status_code == 404


def test_one_may_revoke_ones_own_token_and_no_other(client: TestClient, database: Database) -> None:
    ann, bob = token(database, "ann", ("viewer", "*")), token(database, "bob", ("viewer", "*"))
    ids = {row["sub"]: row["id"] for row in database.read_sync(lambda c: grants.list_tokens(c, None))}
    assert [row["sub"] for row in client.get("/v1/tokens", headers=auth(ann)).json()["tokens"]] == ["ann"]
    assert client.delete(f"/v1/tokens/{ids['bob']}", headers=auth(ann)).status_code == 404
    assert client.delete(f"/v1/tokens/{ids['ann']}", headers=auth(ann)).status_code == 204
    assert client.get("/v1/whoami", headers=auth(bob)).status_code == 200


def test_an_admin_of_one_tenant_cannot_reach_beyond_it(client: TestClient, database: Database) -> None:
    admin = auth(token(database, "adm", ("admin", "acme")))
    token(database, "gus", ("viewer", "globex"))
    assert [g["tenant"] for g in client.get("/v1/grants", headers=admin).json()["grants"]] == ["acme"]
    mine = {"sub": "new", "role": "viewer", "tenant": "acme"}
    assert client.post("/v1/grants", json=mine, headers=admin).status_code == 201
    for tenant in ("globex", "*"):
        assert client.post("/v1/grants", json={**mine, "tenant": tenant}, headers=admin).status_code == 403
    assert client.post("/v1/tokens", json={"sub": "new"}, headers=admin).status_code == 403
    foreign = database.read_sync(lambda c: grants.list_grants(c, Reach(False, frozenset({"globex"}))))[0]
    assert client.delete(f"/v1/grants/{foreign['id']}", headers=admin).status_code == 404


def test_path_tokens_are_issued_by_admins_and_reach_the_webhook_as_digests(
    client: TestClient, database: Database, services: FakeServices
) -> None:
    admin = auth(token(database, "root", ("admin", "*")))
    issued = client.post("/v1/clusters/train-us/path-tokens", json={"days": 1}, headers=admin).json()
    digest = hashlib.sha256(issued["token"].encode()).digest()
    valid = database.read_sync(lambda conn: grants.path_token_hashes(conn, NOW))
    assert valid == {"train-us": {digest: NOW + DAY}}
    assert database.read_sync(lambda conn: grants.path_token_hashes(conn, NOW + DAY)) == {}
    assert client.delete(f"/v1/path-tokens/{issued['id']}", headers=admin).status_code == 204
    assert database.read_sync(lambda conn: grants.path_token_hashes(conn, NOW)) == {}
    assert services.reloads == 2
    assert issued["token"] not in client.get("/v1/path-tokens", headers=admin).text


def test_a_revocation_that_was_not_put_in_force_can_be_repeated(
    client: TestClient, database: Database, services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = auth(token(database, "root", ("admin", "*")))
    issued = client.post("/v1/clusters/train-us/path-tokens", json={"days": 1}, headers=admin).json()

    async def away() -> None:
        raise StoreUnavailable("the database did not read: busy")

    with monkeypatch.context() as patched:
        patched.setattr(services, "identities_changed", away)
        assert client.delete(f"/v1/path-tokens/{issued['id']}", headers=admin).status_code == 503
    assert services.reloads == 1
    assert client.delete(f"/v1/path-tokens/{issued['id']}", headers=admin).status_code == 404
    assert services.reloads == 2


def test_nothing_is_granted_or_issued_for_what_is_not_declared(
    client: TestClient, database: Database, services: FakeServices
) -> None:
    admin = auth(token(database, "root", ("admin", "*")))
    grant = {"sub": "new", "role": "viewer", "tenant": "acmee"}
    refused = client.post("/v1/grants", json=grant, headers=admin)
    assert (refused.status_code, refused.json()["fix"]) == (404, 'did you mean "acme"?')
    far = client.post("/v1/grants", json={**grant, "tenant": "nope"}, headers=admin)
    assert (far.status_code, far.json()["fix"]) == (404, "known: acme, globex")
    assert client.post("/v1/grants", json={**grant, "tenant": "*"}, headers=admin).status_code == 201
    no_cluster = client.post("/v1/clusters/train-uk/path-tokens", json={}, headers=admin)
    assert no_cluster.status_code == 404
    assert "train-" in no_cluster.json()["fix"]
    assert services.reloads == 0
    assert database.read_sync(grants.list_path_tokens) == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"cluster": "train-us"}',
        b'{"cluster": "train-us", "request": {}, "object": {}}',
        b'{"cluster": 7, "request": {}}',
        b'{"cluster": "train-us", "request": {}, "surprise": "hunter2"}',
        b'{"cluster": "Train US", "request": {}}',
    ],
)
def test_decide_takes_its_input_literally(client: TestClient, database: Database, body: bytes) -> None:
    headers = {**auth(token(database, "v", ("viewer", "acme"))), "content-type": "application/json"}
    answer = client.post("/v1/decide", content=body, headers=headers)
    assert answer.status_code == 422
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"cluster": "c", "request": {"a": NaN}}',
        b'{"cluster": "c", "request": {"a": 1e999}}',
        b'{"cluster": "c", "request": {"a": "\\ud800 tail"}}',
        b'{"cluster": "c", "request": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b"\xff\xfe",
    ],
)
def test_json_that_cannot_be_read_is_a_400(client: TestClient, database: Database, body: bytes) -> None:
    headers = {**auth(token(database, "v", ("viewer", "acme"))), "content-type": "application/json"}
    answer = client.post("/v1/decide", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["status"] == 400
    assert ("out of range" in answer.text) == (b"1e999" in body)


def test_a_body_over_the_limit_is_refused(client: TestClient, database: Database) -> None:
    headers = {**auth(token(database, "v", ("viewer", "acme"))), "content-type": "application/json"}
    assert client.post("/v1/decide", content=b"x" * 20_000_000, headers=headers).status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield b" " * 100_000

    assert client.post("/v1/decide", content=chunks(), headers=headers).status_code == 413


def test_errors_are_problems_without_tracebacks_or_values(
    client: TestClient, database: Database, services: FakeServices
) -> None:
    headers = auth(token(database, "v", ("viewer", "*")))
    for error, status in ((RuntimeError("s3cret"), 500), (StoreUnavailable("no disk", fix="look"), 503)):
        services.explode = error
        answer = client.get("/v1/status", headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (status, status)
        assert "s3cret" not in answer.text
        assert "Traceback" not in answer.text
    assert answer.json()["fix"] == "look"
    missing = client.get("/v1/nothing", headers=headers)
    assert (missing.status_code, missing.json()["title"]) == (404, "Not Found")


def test_readiness_is_a_floor_and_says_what_is_missing(client: TestClient, services: FakeServices) -> None:
    assert client.get("/readyz").status_code == 200
    services.missing = {"bundle": "not trusted yet"}
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["missing"] == {"bundle": "not trusted yet"}
    assert client.get("/healthz").status_code == 200


def test_grants_refuse_what_is_no_grant(database: Database) -> None:
    for role, tenant in (("root", "*"), ("approver:", "*"), ("viewer", "No Such"), ("viewer", "")):
        with pytest.raises(InvalidGrant):
            database.write_sync(
                lambda conn, role=role, tenant=tenant: grants.add_grant(
                    conn, "local", "a", role, tenant, by="t", now_ns=NOW
                )
            )
    with pytest.raises(InvalidGrant):
        token(database, "a", days=366)
    with pytest.raises(InvalidGrant):
        token(database, "with space")


def test_a_principal_without_the_role_has_no_reach() -> None:
    with pytest.raises(Forbidden):
        Principal("local", "a", ()).reach("viewer")


def test_an_issued_token_does_not_show_in_repr(database: Database) -> None:
    issued = database.write_sync(
        lambda conn: grants.issue_token(conn, "local", "a", label="", by="t", now_ns=NOW, days=1)
    )
    assert issued.token not in repr(issued)


def test_the_documentation_page_carries_its_own_script(client: TestClient) -> None:
    page = client.get("/docs").text
    served = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert [path for path in served if "://" in path] == []
    assert {200} == {client.get(path).status_code for path in served}


def test_the_description_says_which_problems_an_operation_answers(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    text = json.dumps(document)
    assert "HTTPValidationError" not in text
    assert {"Problem", "FieldError"} <= document["components"]["schemas"].keys()
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in document["components"]["schemas"], name
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = operation["responses"]
            said = {int(status) for status in answers if int(status) >= 400}
            due = {401, 403, 422, 500, 503} if path.startswith("/v1/") else {500}
            due |= {400, 408, 413, 429} if "requestBody" in operation else set()
            assert due <= said, (method, path)
            for status in said - ({503} if path == "/readyz" else set()):
                form = answers[str(status)]["content"]
                assert list(form) == ["application/problem+json"], (method, path, status)
                assert form["application/problem+json"]["schema"]["$ref"].endswith("/Problem")


def test_every_problem_has_the_form_that_is_described(client: TestClient, database: Database) -> None:
    admin = auth(token(database, "root", ("admin", "*")))
    answers = [
        client.get("/v1/links"),
        client.get("/v1/links/nowhere", headers=admin),
        client.get("/v1/records?limit=0", headers=admin),
        client.get("/v1/nothing"),
        client.put("/v1/links"),
        client.post("/v1/decide", content=b"{", headers={**admin, "content-type": "application/json"}),
        client.post("/v1/tokens", json={"sub": "with space"}, headers=admin),
        client.get("/v1/status", headers=auth(token(database, "nobody"))),
    ]
    for answer in answers:
        problem = Problem.model_validate_json(answer.content, strict=True)
        assert (problem.status, problem.type) == (answer.status_code, "about:blank")
