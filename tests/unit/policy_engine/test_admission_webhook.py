"""The webhook over real TLS, with the shipped rules and a real spool: verdicts, protocol, records, credentials."""

import asyncio
import hashlib
import json
import logging
import resource as rlimits
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from admission_world import DATASETS, SEGMENTS, UID, Connection, World, pod, review, running

from policy_engine.limits import LIMITS


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as world:
        yield world


async def test_a_compliant_pod_is_admitted_and_its_record_is_already_durable(world: World) -> None:
    answer = await world.ask(review(pod()))
    assert answer.allowed
    assert answer.response["uid"] == UID
    (record,) = world.records()
    public, sensitive, header = record.public_fields(), record.sensitive_fields(), record.header_fields()
    notes = answer.response["auditAnnotations"]
    assert notes == {
        "decision.705ab4f5": public["decision_id"],
        "leaf.705ab4f5": record.leaf_hash().hex(),
        "policy_digest.705ab4f5": world.bundle.policy_digest,
    }
    assert (header["kind"], header["source"], header["source_seq"]) == ("decision", "webhook-0", "0")
    assert header["scope"] == world.scopes["acme"]
    assert public["allowed"] is True
    assert public["rules"] == []
    assert public["caller"]["how"] == "client_certificate"
    assert (public["cluster"], public["binding"], public["engine"]) == ("train-us", "acme-train", "wasm")
    assert public["bundle_digest"] == world.bundle.bundle_digest
    assert public["resource_digest"] == world.resources.digest
    assert sensitive["uid"] == UID
    facts = json.dumps(sensitive["facts"], sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(facts).hexdigest() == public["facts_digest"]
    assert sensitive["context"]["binding"]["tenant"] == "acme"


async def test_names_of_objects_and_people_are_in_the_sensitive_part_only(world: World) -> None:
    await world.ask(review(pod("secret-project", annotations={SEGMENTS: "globex-images"})))
    (record,) = world.records()
    for name in (b"secret-project", b"grace.hopper", b"research", b"globex-images", UID.encode()):
        assert name not in record.public
        assert name not in record.header
        assert name in record.sensitive


@pytest.mark.parametrize(
    ("obj", "cluster", "namespace", "rule"),
    [
        (pod(annotations={DATASETS: "eu-patients"}), "train-us", "acme-train", "residency.region"),
        (pod(annotations={SEGMENTS: "globex-images"}), "train-us", "acme-train", "tenancy.segment"),
        (pod(annotations={SEGMENTS: "no-such-thing"}), "train-us", "acme-train", "tenancy.segment"),
        (pod(site=None), "train-eu", "acme-eu", "encryption.link"),
        (pod(annotations={}), "train-us", "acme-train", "tenancy.undeclared"),
        (pod(), "train-us", "nobodys", "unbound"),
    ],
)
async def test_a_refusal_says_which_rule_which_field_and_how_to_fix_it(
    world: World, obj: Any, cluster: str, namespace: str, rule: str
) -> None:
    answer = await world.ask(review(obj, namespace=namespace), cluster=cluster)
    assert not answer.allowed
    status = answer.response["status"]
    assert (status["code"], status["reason"], status["status"]) == (403, "Forbidden", "Failure")
    assert f"[{rule}]" in status["message"]
    assert "Fix:" in status["message"]
    (record,) = world.records()
    public = record.public_fields()
    assert public["allowed"] is False
    assert rule in public["rules"]
    assert public["decision_id"] in status["message"]


async def test_foreign_and_absent_names_are_refused_in_the_same_words(world: World) -> None:
    texts = []
    for name in ("globex-images", "no-such-thing"):
        answer = await world.ask(review(pod(annotations={SEGMENTS: name})))
        lines = answer.message.split("\n", 1)[1]
        texts.append(lines.replace(name, "NAME"))
    assert texts[0] == texts[1]


async def test_a_closed_link_refuses_new_work_and_says_since_when(world: World) -> None:
    crossing = review(pod(site="cw-us-east"))
    assert (await world.ask(crossing)).allowed
    world.posture("cw-gcp-1", "closed", "violation", "encryption_off")
    answer = await world.ask(crossing)
    assert not answer.allowed
    assert "[encryption.gate]" in answer.message
    assert "since" in answer.message
    world.posture("cw-gcp-1", "open", "encrypted", "encrypted", fresh_s=-1)
    assert not (await world.ask(crossing)).allowed, "evidence past its time is unknown whatever it says"


async def test_an_update_is_judged_on_what_it_brings(world: World) -> None:
    bad = pod(annotations={SEGMENTS: "globex-images"})
    same = await world.ask(review(bad, operation="UPDATE", oldObject=bad))
    assert same.allowed
    assert any("tenancy.segment" in text for text in same.response["warnings"])
    odd = await world.ask(review(bad, operation="UPDATE", oldObject=[1]))  # no object: nothing to compare
    assert (odd.status, odd.allowed, "[tenancy.segment]" in odd.message) == (200, False, True), odd.message
    worse = await world.ask(review(bad, operation="UPDATE", oldObject=pod()))
    assert not worse.allowed
    allowed, _, refused = (record.public_fields() for record in world.records())
    assert allowed["warned"] == ["tenancy.segment"]
    assert refused["rules"] == ["tenancy.segment"]
    for operation in ("CREATE", "CONNECT"):  # what is said to have been there before excuses nothing
        assert not (await world.ask(review(bad, operation=operation, oldObject=bad))).allowed


async def test_what_a_debug_container_brings_is_judged(world: World) -> None:
    old = pod()
    new = pod(ephemeralContainers=[{"name": "debug", "image": "nginx@x:y"}])
    answer = await world.ask(
        review(new, operation="UPDATE", oldObject=old, subResource="ephemeralcontainers")
    )
    assert not answer.allowed
    assert "[facts.unreadable]" in answer.message


async def test_deleting_a_violating_pod_is_allowed_and_recorded(world: World) -> None:
    bad = pod(annotations={SEGMENTS: "globex-images"})
    assert (await world.ask(review(None, operation="DELETE", oldObject=bad))).allowed
    assert (await world.ask(review(None, operation="DELETE", oldObject=bad, namespace="nobodys"))).allowed
    first = world.records()[0].public_fields()
    assert (first["operation"], first["exempt"]) == ("DELETE", "delete_not_governed")


async def test_connect_is_decided(world: World) -> None:
    options = {"apiVersion": "v1", "kind": "PodExecOptions", "metadata": {}, "command": ["sh"], "stdin": True}
    kind = {"group": "", "version": "v1", "kind": "PodExecOptions"}
    body = review(options, operation="CONNECT", subResource="exec", name="train", kind=kind)
    answer = await world.ask(body)
    assert answer.status == 200
    assert answer.response["uid"] == UID
    public = world.records()[0].public_fields()
    assert (public["operation"], public["subresource"]) == ("CONNECT", "exec")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "CONNECT"])
async def test_neither_object_nor_old_object_is_refused(world: World, operation: str) -> None:
    answer = await world.ask(review(None, operation=operation))
    assert not answer.allowed
    assert "[facts.un" in answer.message


async def test_a_delete_without_any_object_gets_a_clean_answer(world: World) -> None:
    assert (await world.ask(review(None, operation="DELETE"))).allowed
    assert not (await world.ask(review(None, operation="NONSENSE"))).allowed


async def test_an_unknown_kind_with_a_podspec_inside_is_judged_by_it(world: World) -> None:
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "TrainingThing",
        "metadata": {"name": "thing"},
        "spec": {
            "groups": [
                {
                    "template": {
                        "metadata": {"annotations": {SEGMENTS: "globex-images"}},
                        "spec": pod()["spec"],
                    }
                }
            ]
        },
    }
    answer = await world.ask(review(obj))
    assert not answer.allowed
    assert "tenancy.segment" in answer.message
    obj["spec"]["groups"][0]["template"]["metadata"]["annotations"] = {DATASETS: "us-corpus"}
    assert (await world.ask(review(obj))).allowed


async def test_generate_name_without_a_name_is_normal(world: World) -> None:
    obj = pod()
    del obj["metadata"]["name"]
    obj["metadata"]["generateName"] = "train-"
    body = review(obj)
    assert (await world.ask(body)).allowed
    del body["request"]["name"]
    assert (await world.ask(body)).allowed
    assert world.records()[0].sensitive_fields()["facts"]["subject"]["generateName"] == "train-"


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("nginx@x:y", False),
        ("nginx@sha256:" + "A" * 64, False),
        ("nginx@sha256:abc", False),
        ("nginx:1.0 ", False),
        ("registry.example.com:5000/ml/train", True),
        ("nginx@sha256:" + "a" * 64, True),
    ],
)
async def test_images_are_read_by_the_whole_grammar(world: World, image: str, allowed: bool) -> None:
    answer = await world.ask(review(pod(containers=[{"name": "main", "image": image}])))
    assert answer.allowed is allowed
    if not allowed:
        assert "facts.unreadable" in answer.message
    images = world.records()[0].sensitive_fields()["facts"]["pods"][0]["images"]
    assert images[0]["ref"] == image.strip() or "invalid" in images[0]
    if image == "registry.example.com:5000/ml/train":
        assert images[0]["registry"] == "registry.example.com:5000"
        assert "tag" not in images[0]


async def test_unbound_namespaces_follow_their_cluster(world: World) -> None:
    assert not (await world.ask(review(pod(), namespace="scratch"))).allowed
    warned = await world.ask(
        review(pod(annotations={DATASETS: "none"}), namespace="monitoring"), cluster="train-eu"
    )
    assert warned.allowed
    assert any("unbound" in text for text in warned.response["warnings"])
    assert not (await world.ask(review(pod(), namespace="fresh"), cluster="train-eu")).allowed
    scopes = [record.header_fields()["scope"] for record in world.records()]
    assert scopes == [world.scopes["estate"]] * 3


async def test_platform_namespaces_are_exempt_and_recorded_as_such(world: World) -> None:
    bad = pod(containers=[{"name": "main", "image": "nginx@x:y"}])
    assert (await world.ask(review(bad, namespace="kube-system"))).allowed
    assert world.records()[0].public_fields()["exempt"] == "platform_namespace"


async def test_dry_run_is_said_in_the_record(world: World) -> None:
    await world.ask(review(pod(), dryRun=True))
    assert world.records()[0].public_fields()["dry_run"] is True


async def test_values_of_variables_never_enter_the_record(world: World) -> None:
    canary = "hunter2-canary"
    env = [
        {"name": "AWS_SECRET_ACCESS_KEY", "value": canary},
        {"name": "DATABASE_URL", "value": f"postgres://u:{canary}@db.example.com/x"},
    ]
    await world.ask(
        review(pod(containers=[{"name": "main", "image": "a/b:1", "env": env, "args": [canary]}]))
    )
    stored = b"".join(path.read_bytes() for path in world.folder.rglob("*.spool"))
    assert canary.encode() not in stored
    assert b"db.example.com" in stored


async def test_a_path_token_is_accepted_and_the_record_says_which_way(world: World) -> None:
    async with world.connection(None) as connection:
        answer = await connection.post(f"/admit/train-us/{world.tokens['train-us']}", review(pod()))
    assert answer.allowed
    caller = world.records()[0].public_fields()["caller"]
    assert caller["how"] == "path_token"
    assert world.tokens["train-us"] not in str(caller)


async def test_a_path_token_reaches_no_log_whatever_happens(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = world.tokens["train-us"]
    seen: list[dict[str, Any]] = []
    inner = world.app._handler.begin

    def watching(*args: Any) -> Any:
        seen.append({"args": args})
        raise RuntimeError("defect")

    world.app._handler.begin = watching  # type: ignore[method-assign]
    async with world.connection(None) as connection:
        answer = await connection.post(f"/admit/train-us/{token}", review(pod()))
    assert answer.status == 500
    world.app._handler.begin = inner  # type: ignore[method-assign]
    async with world.connection(None) as connection:
        assert (await connection.post(f"/admit/train-us/{token}", b"{")).status == 400
    assert seen
    assert token not in caplog.text


@pytest.mark.parametrize(
    "how", ["none", "unknown token", "foreign token", "foreign certificate", "unknown cluster"]
)
async def test_without_the_clusters_own_credential_there_is_no_answer_and_no_record(
    world: World, how: str
) -> None:
    path, certificate, expected = "/admit/train-us", None, 401
    if how == "unknown token":
        path += "/" + "0" * 64
    elif how == "foreign token":
        path, expected = f"{path}/{world.tokens['train-eu']}", 403
    elif how == "foreign certificate":
        certificate, expected = "train-eu", 403
    elif how == "unknown cluster":
        path = "/admit/nowhere"
    async with world.connection(certificate) as connection:
        answer = await connection.post(path, review(pod()))
    assert answer.status == expected
    assert answer.response["allowed"] is False
    assert world.records() == []
    assert sum(world.app.metrics.refused.values()) == 1


async def test_the_body_is_not_read_before_authentication(world: World) -> None:
    async with world.connection(None) as connection:
        connection.head("POST", "/admit/train-us", {"content-length": "1000000"})
        answer = await asyncio.wait_for(connection.reply(), 5)
        assert (answer.status, answer.headers["connection"]) == (401, "close")


async def test_a_body_of_20_mb_is_refused_by_its_length_alone(world: World) -> None:
    async with world.connection("train-us") as connection:
        connection.head("POST", "/admit/train-us", {"content-length": "20000000"})
        answer = await asyncio.wait_for(connection.reply(), 5)
    assert (answer.status, answer.response["allowed"]) == (413, False)
    assert world.records() == []


async def test_a_chunked_body_without_end_is_refused_without_reading_it_whole(world: World) -> None:
    before = rlimits.getrusage(rlimits.RUSAGE_SELF).ru_maxrss
    async with world.connection("train-us") as connection:
        connection.head("POST", "/admit/train-us", {"transfer-encoding": "chunked"})
        sent = 0
        answer = asyncio.create_task(connection.reply())
        try:
            for _ in range(3_000):
                connection.writer.write(b"186a0\r\n" + b" " * 100_000 + b"\r\n")
                await connection.writer.drain()
                sent += 100_000
                if answer.done():
                    break
        except OSError:
            pass
        assert (await asyncio.wait_for(answer, 5)).status == 413
    assert sent < 100_000_000, "of 300 MB; what it sent meanwhile was thrown away"
    assert rlimits.getrusage(rlimits.RUSAGE_SELF).ru_maxrss - before < 60_000, "kilobytes"
    assert world.app._bodies._held == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"\\ud800 x"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":'
        + b'{"a":' * 100_000
        + b"1"
        + b"}" * 100_001,
        b'{"parameters": {}, "review": {}}',
        json.dumps(review(pod())).replace('"acme-train"', "NaN").encode(),
    ],
    ids=["empty", "truncated", "not UTF-8", "lone surrogate", "100,000 levels", "no review", "NaN"],
)
async def test_what_cannot_be_decoded_is_a_400_on_a_connection_that_goes_on(
    world: World, body: bytes
) -> None:
    async with world.connection("train-us") as connection:
        answer = await connection.post("/admit/train-us", body)
        assert (answer.status, answer.response["allowed"]) == (400, False)
        assert (await connection.post("/admit/train-us", review(pod()))).allowed


@pytest.mark.parametrize("levels", [150, 300, 900])
async def test_deep_objects_are_answered_with_their_uid(world: World, levels: int) -> None:
    deep: Any = 1
    for _ in range(levels):
        deep = {"a": deep}
    obj = {"apiVersion": "example.com/v1", "kind": "Deep", "metadata": {"name": "deep"}, "spec": deep}
    answer = await world.ask(review(obj))
    assert answer.status == 200
    assert answer.response["uid"] == UID


@pytest.mark.parametrize("field", ["containers", "volumes", "nodeSelector", "affinity", "initContainers"])
@pytest.mark.parametrize("value", [None, [], {}, "x", 7, [None], {"a": None}])
async def test_wrong_types_inside_the_object_get_an_answer(world: World, field: str, value: Any) -> None:
    answer = await world.ask(review(pod(**{field: value})))
    assert answer.status == 200
    assert answer.response["uid"] == UID
    assert len(world.records()) == 1


async def test_the_last_duplicate_key_wins(world: World) -> None:
    raw = json.dumps(review(pod())).replace(
        '"us-corpus"', '"us-corpus", "sluicegate.io/datasets": "eu-patients"'
    )
    assert "residency.region" in (await world.ask(raw.encode())).message


async def test_other_methods_and_paths_are_refused(world: World) -> None:
    async with world.connection("train-us") as connection:
        connection.head("GET", "/admit/train-us", {})
        assert (await connection.reply()).status == 405
    for path in ("/", "/admit/", "/healthz", "/admit/train-us/" + "x/" * 5):
        async with world.connection("train-us") as connection:
            assert (await connection.post(path, review(pod()))).status in (403, 404, 200)


async def test_a_slow_body_is_given_up(tmp_path: Path) -> None:
    from dataclasses import replace

    async with (
        running(tmp_path, limits=replace(LIMITS, review_body_s=0.2)) as world,
        world.connection("train-us") as c,
    ):
        c.head("POST", "/admit/train-us", {"content-length": "1000"})
        c.writer.write(b"{")
        answer = await asyncio.wait_for(c.reply(), 5)
        assert (answer.status, answer.headers["connection"]) == (408, "close")


async def test_many_reviews_on_many_connections_are_each_recorded_once(world: World) -> None:
    async def client(number: int) -> list[str]:
        ids = []
        async with world.connection("train-us") as connection:
            for turn in range(25):
                answer = await connection.post("/admit/train-us", review(pod(), uid=f"uid-{number}-{turn}"))
                assert answer.response["uid"] == f"uid-{number}-{turn}"
                ids += [
                    v for k, v in answer.response["auditAnnotations"].items() if k.startswith("decision.")
                ]
        return ids

    answered = [one for ids in await asyncio.gather(*(client(n) for n in range(8))) for one in ids]
    recorded = [record.public_fields()["decision_id"] for record in world.records()]
    assert sorted(answered) == sorted(recorded)
    assert len(set(answered)) == 200
    seqs = [record.header_fields()["source_seq"] for record in world.records()]
    assert seqs == [str(number) for number in range(200)]


async def test_metrics_have_bounded_labels(world: World) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(world.app.metrics)
    await world.ask(review(pod("secret-name")))
    text = generate_latest(registry).decode()
    assert (
        'sluicegate_admission_decisions_total{allowed="true",cluster="train-us",operation="CREATE"} 1.0'
        in text
    )
    assert "secret-name" not in text
    assert "acme" not in text


async def test_the_webhook_is_mounted_in_the_api_too(world: World) -> None:
    from policy_engine.api import create_api

    api = create_api(None, clock=lambda: 0, admission=world.app)  # type: ignore[arg-type]
    sent: list[dict[str, Any]] = []
    body = json.dumps(review(pod())).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/admit/train-us/{world.tokens['train-us']}",
        "raw_path": f"/admit/train-us/{world.tokens['train-us']}".encode(),
        "query_string": b"",
        "headers": [(b"content-length", b"%d" % len(body))],
        "state": {},
        "root_path": "",
        "scheme": "https",
        "http_version": "1.1",
        "server": None,
        "client": None,
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await api(scope, receive, send)
    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["response"]["allowed"] is True
    assert (scope["path"], scope["raw_path"]) == ("/admit/train-us", b"/admit/train-us"), "holds no token"


async def test_a_connection_is_kept_for_the_next_review(world: World) -> None:
    async with world.connection("train-us") as connection:
        for _ in range(3):
            answer = await connection.post("/admit/train-us?timeout=10s", review(pod()))
            assert answer.allowed
            assert "connection" not in answer.headers
    assert isinstance(connection, Connection)
