"""The direct way past ASGI answers what the ASGI route answers, and leaves to it whatever is not ordinary."""

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from admission_world import DATASETS, UID, Answer, Connection, World, pod, review, running

from evidence.errors import SpoolUnwritable
from evidence.spool import Spool
from policy_engine.admission import protocol
from policy_engine.admission.app import AdmissionApp, DirectReview
from policy_engine.admission.handler import Handling
from policy_engine.errors import DecisionLate
from policy_engine.limits import LIMITS

HEAD = "POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n"


class Seen:
    """How many reviews were handled directly."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = 0
        run = DirectReview.run

        def counting(this: DirectReview, *given: Any) -> None:
            self.run += 1
            run(this, *given)

        monkeypatch.setattr(DirectReview, "run", counting)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


async def post(
    connection: Connection, body: bytes, target: str = "/admit/train-us", more: str = "", cut: int = 0
) -> Answer:
    """One POST in one write; with `cut`, its last octets come later."""
    data = HEAD.format(target=target, length=len(body), more=more).encode() + body
    connection.writer.write(data[: len(data) - cut])
    if cut:
        await asyncio.sleep(0.05)
        connection.writer.write(data[len(data) - cut :])
    return await connection.reply()


def plain(answer: Answer) -> tuple[int, dict[str, str], str]:
    """An answer without what differs from one decision to the next."""
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    text = answer.body.decode()
    if answer.status == 200 and (notes := json.loads(text)["response"].get("auditAnnotations")):
        for value in notes.values():
            text = text.replace(value, "#" * len(value))
    return answer.status, headers, text


BODIES = {
    "allowed": json.dumps(review(pod())).encode(),
    "denied": json.dumps(review(pod(annotations={DATASETS: "eu-patients"}))).encode(),
    "no json": b"{",
    "no uid": b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}',
    "other version": json.dumps({**review(pod()), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    "deep": json.dumps(review(pod())).encode()[:-2] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    "empty": b"",
}


Prepare = Callable[[World, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Case:
    """A review, what is made to happen to it, and what comes of it (see `outcome`)."""

    body: bytes
    expected: str
    prepare: Prepare = lambda _world, _patch: None
    certificate: str | None = "train-us"
    taken: bool = True  # by the direct way


def outcome(answer: Answer, recorded: int) -> str:
    """HTTP status, verdict with the code of a refusal, whether the connection ends, how many records."""
    verdict = answer.response
    words = [str(answer.status), "allowed" if verdict["allowed"] else "refused"]
    words += [str(verdict["status"]["code"])] if "status" in verdict else []
    words += [answer.headers["connection"]] if "connection" in answer.headers else []
    return " ".join([*words, *["recorded"] * recorded])


def ended(failure: Exception) -> Prepare:
    """The spool takes the record, and it never becomes durable."""

    def submit(_seq: int, _frame: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, future.set_exception, failure)
        return future

    return lambda world, patch: patch.setattr(world.spool, "submit", submit)


def raising(owner: Any, name: str, failure: Exception) -> Prepare:
    """A function that fails."""

    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    return lambda _world, patch: patch.setattr(owner, name, fail)


def full(times: int, *, cluster: bool = False) -> Prepare:
    """So many reviews are in flight."""

    def prepare(world: World, patch: pytest.MonkeyPatch) -> None:
        if cluster:
            patch.setitem(world.app._per_cluster, "train-us", times * LIMITS.reviews_in_flight_per_cluster)
        else:
            patch.setattr(world.app.metrics, "in_flight", times * LIMITS.reviews_in_flight)

    return prepare


def no_time(*_: Any) -> float:
    """Seconds for an answer."""
    return -1.0


SECRET = "what-the-object-says"
UNWRITABLE = raising(Spool, "submit", SpoolUnwritable("full"))
CLEAN_UP = json.dumps(review(None, operation="DELETE", oldObject=pod())).encode()
OK, DEFECT = BODIES["allowed"], ValueError(SECRET)
CASES = {
    "allowed": Case(OK, "200 allowed recorded"),
    "denied": Case(BODIES["denied"], "200 refused 403 recorded"),
    "no json": Case(BODIES["no json"], "400 refused 400"),
    "no uid": Case(BODIES["no uid"], "400 refused 400"),
    "other version": Case(BODIES["other version"], "200 refused 400"),
    "deep": Case(BODIES["deep"], "400 refused 400", taken=False),
    "empty": Case(BODIES["empty"], "400 refused 400"),
    "deep object": Case(
        json.dumps(review(pod(x=0))).replace('"x": 0', '"x": ' + "[" * 900 + "]" * 900).encode(),
        "200 allowed recorded",
    ),
    "too large": Case(OK + b" " * LIMITS.review_body_bytes, "413 refused 413 close", taken=False),
    "no credential": Case(OK, "401 refused 401 close", certificate=None, taken=False),
    "other cluster": Case(OK, "403 refused 403 close", certificate="train-eu", taken=False),
    "overload": Case(OK, "200 refused 429", full(1), taken=False),
    "overload of a cluster": Case(OK, "200 refused 429", full(1, cluster=True), taken=False),
    "far too many": Case(OK, "429 refused 429 close", full(2), taken=False),
    "spool unwritable": Case(OK, "200 refused 503", UNWRITABLE),
    "clean-up passes": Case(CLEAN_UP, "200 allowed", UNWRITABLE),
    "not durable": Case(OK, "200 refused 503", ended(SpoolUnwritable("full"))),
    "late": Case(OK, "200 refused 503", ended(DecisionLate("late"))),
    "late clean-up": Case(CLEAN_UP, "200 allowed", ended(DecisionLate("late"))),
    "late before it is judged": Case(
        OK, "200 refused 503", lambda _, patch: patch.setattr(AdmissionApp, "_allowed_s", no_time)
    ),
    "no engine": Case(OK, "200 refused 503", lambda world, patch: patch.setattr(world, "engine", object())),
    "a defect around the rules": Case(
        OK, "200 refused 503", lambda world, patch: patch.delitem(world.scopes, "acme")
    ),
    "a defect while decoding": Case(OK, "500 refused 500 close", raising(protocol, "parse", DEFECT)),
    "a defect at the end": Case(OK, "500 refused 500 close recorded", raising(Handling, "finish", DEFECT)),
}


def counts(world: World) -> tuple[Counter[Any], ...]:
    """All that the webhook has counted, and forget it."""
    metrics = world.app.metrics
    counted = (Counter(metrics.answered), Counter(metrics.refused), Counter(metrics.failed_open))
    unrecorded = Counter(world.app._handler.unrecorded.counts)
    for one in (metrics.answered, metrics.refused, metrics.failed_open, world.app._handler.unrecorded.counts):
        one.clear()
    return *counted, unrecorded


@pytest.mark.parametrize("name", CASES)
async def test_both_ways_answer_count_and_record_the_same(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    case = CASES[name]
    got = []
    case.prepare(world, monkeypatch)
    flights = world.app.metrics.in_flight, world.app._per_cluster.get("train-us", 0)
    for direct in (True, False):
        if not direct:
            world.listeners._running["admission"].protocol.direct = None
        before, observed = len(world.records()), sum(world.app.metrics._buckets)
        async with world.connection(case.certificate) as connection:
            answer = await post(connection, case.body)
        counted = counts(world)
        measured = sum(world.app.metrics._buckets) - observed
        recorded = len(world.records()) - before
        assert case.expected == outcome(answer, recorded)
        got.append((plain(answer), counted, measured, recorded))
        assert (world.app.metrics.in_flight, world.app._per_cluster.get("train-us", 0)) == flights
        assert seen.run == case.taken
        assert "date" in answer.headers
        assert SECRET not in answer.body.decode() + caplog.text
    assert got[0] == got[1]


@pytest.mark.parametrize("cut", [1, 100, len(BODIES["allowed"])])
async def test_a_body_that_comes_later_goes_the_asgi_way_and_is_counted_once(
    world: World, seen: Seen, cut: int
) -> None:
    async with world.connection("train-us") as connection:
        for _ in range(2):
            assert (await post(connection, BODIES["allowed"], cut=cut)).allowed
        assert seen.run == 0
        assert (await post(connection, BODIES["allowed"])).allowed
        assert seen.run == 1
    assert world.app.metrics.in_flight == 0
    assert set(world.app._per_cluster.values()) == {0}
    assert len(world.records()) == 3


@pytest.mark.parametrize(
    ("target", "more", "certificate", "status"),
    [
        ("/admit/train-us/", "", "train-us", 200),
        ("/admit/train%2Dus", "", "train-us", 200),
        ("/admit/train-us", "connection: close\r\n", "train-us", 200),
        ("/admit/train-us", "expect: 100-continue\r\n", "train-us", 100),
        ("/admit/train-eu", "", "train-us", 403),
        ("/admit/train-us", "", None, 401),
        ("/elsewhere", "", "train-us", 404),
    ],
)
async def test_what_is_not_ordinary_is_answered_by_the_reference(
    world: World, seen: Seen, target: str, more: str, certificate: str | None, status: int
) -> None:
    async with world.connection(certificate) as connection:
        connection.writer.write(
            HEAD.format(target=target, length=len(BODIES["allowed"]), more=more).encode() + BODIES["allowed"]
        )
        assert int((await connection.reader.readline()).split()[1]) == status
    assert seen.run == 0


async def test_a_path_token_goes_the_asgi_way(world: World, seen: Seen) -> None:
    async with world.connection(None) as connection:
        token = world.tokens["train-us"]
        assert (await post(connection, BODIES["allowed"], f"/admit/train-us/{token}")).allowed
    assert seen.run == 0
    assert token not in repr(world.app._targets)


async def test_pipelined_reviews_are_answered_in_order(world: World) -> None:
    names = ["allowed", "denied", "allowed", "no json", "allowed"]
    async with world.connection("train-us") as connection:
        connection.writer.write(
            b"".join(
                HEAD.format(target="/admit/train-us", length=len(BODIES[n]), more="").encode() + BODIES[n]
                for n in names
            )
        )
        answers = [await connection.reply() for _ in names]
    assert [a.status for a in answers] == [200, 200, 200, 400, 200]
    assert [a.allowed for a in answers if a.status == 200] == [True, False, True, True]


async def test_answers_do_not_pile_up_for_a_peer_that_does_not_read_them(world: World) -> None:
    body = BODIES["no json"]  # answered at once
    request = HEAD.format(target="/admit/train-us", length=len(body), more="").encode() + body
    async with world.connection("train-us") as connection:
        assert (await post(connection, body)).status == 400
        (served,) = world.listeners._running["admission"].server.server_state.connections
        writer = connection.writer
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(TimeoutError, OSError):  # it is read no further, or cut off
            for _ in range(100):
                writer.write(request * 500)
                await asyncio.wait_for(writer.drain(), 0.5)
        assert served.transport.get_write_buffer_size() < 1_048_576, "octets"
        writer.transport.abort()


async def test_an_answer_waits_for_its_record_and_a_failed_one_is_a_refusal(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[asyncio.Future[None]] = []

    def submit(_seq: int, _frame: bytes) -> asyncio.Future[None]:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    monkeypatch.setattr(world.spool, "submit", submit)
    async with world.connection("train-us") as connection:
        asked = asyncio.create_task(post(connection, BODIES["allowed"]))
        await asyncio.sleep(0.1)
        assert seen.run == 1
        assert not asked.done()
        waiting[0].set_exception(SpoolUnwritable("full"))
        answer = await asked
    assert not answer.allowed
    assert "[engine.spool_unwritable]" in answer.message
    assert world.app.metrics.in_flight == 0


async def test_a_defect_is_a_500_and_the_connection_ends(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectReview, "run", lambda *_: 1 // 0)
    async with world.connection("train-us") as connection:
        answer = await post(connection, BODIES["allowed"])
        assert (answer.status, answer.headers["connection"]) == (500, "close")
        assert await connection.reader.read() == b""


async def test_a_defect_after_decoding_answers_with_the_uid(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    CASES["a defect at the end"].prepare(world, monkeypatch)
    async with world.connection("train-us") as connection:
        answer = await post(connection, OK)
    assert (answer.status, answer.headers["connection"]) == (500, "close")
    assert (answer.response["uid"], answer.response["allowed"]) == (UID, False)
    assert answer.response["status"]["reason"] == "InternalError"
    assert world.app.metrics.refused == {"defect": 1}


async def test_a_short_way_that_cannot_begin_is_said_and_the_reference_answers(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raising(AdmissionApp, "_plain", DEFECT)(world, monkeypatch)
    async with world.connection("train-us") as connection:
        assert (await post(connection, OK)).allowed
    assert seen.run == 0
    assert "a direct exchange could not begin: ValueError" in caplog.text
    assert SECRET not in caplog.text


async def test_a_peer_that_leaves_before_its_answer_harms_nobody(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.connection("train-us") as gone:
        body = BODIES["allowed"]
        gone.writer.write(HEAD.format(target="/admit/train-us", length=len(body), more="").encode() + body)
        await asyncio.sleep(0)
    async with world.connection("train-us") as connection:
        assert (await post(connection, body)).allowed
    assert world.app.metrics.in_flight == 0


async def test_a_kept_context_is_used_only_while_everything_is_the_same(world: World, seen: Seen) -> None:
    far = json.dumps(review(pod(site="cw-us-east"))).encode()
    async with world.connection("train-us") as connection:
        assert (await post(connection, far)).allowed
        assert (await post(connection, far)).allowed
        link = next(name for name in json.loads(world.records()[0].sensitive)["context"]["links"])
        world.posture(link, "closed", "violation", "encryption_off")
        assert not (await post(connection, far)).allowed
        world.posture(link, "open", "encrypted", "encrypted")
        assert (await post(connection, far)).allowed
        del world.links[link]
        assert not (await post(connection, far)).allowed
