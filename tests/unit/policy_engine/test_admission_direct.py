"""The direct way past ASGI answers what the ASGI route answers, and leaves to it whatever is not ordinary."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from admission_world import DATASETS, Answer, Connection, World, pod, review, running

from evidence.errors import SpoolUnwritable
from policy_engine.admission.app import DirectReview

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


@pytest.mark.parametrize("name", BODIES)
async def test_both_ways_answer_the_same(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with world.connection("train-us") as connection:
        direct = await post(connection, BODIES[name])
        taken = seen.run
        monkeypatch.setattr(type(world.app), "direct", lambda *_: None)
        world.listeners._running["admission"].protocol.direct = None
        reference = await post(connection, BODIES[name])
    assert plain(direct) == plain(reference)
    assert (taken, seen.run) == (0 if name == "deep" else 1, taken)
    assert direct.headers.keys() == reference.headers.keys()  # the date among them
    assert world.app.metrics.in_flight == 0
    assert len(world.records()) == (2 if name in {"allowed", "denied"} else 0)


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
