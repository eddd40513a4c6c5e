"""What one peer may cost: pipelines, idle and silent connections, slow bodies, drains, lost answers."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from admission_world import World, client_context, pod, review, running
from test_api import FakeServices, token

from evidence.database import Database
from policy_engine import http_protocol, listeners
from policy_engine.admission import protocol
from policy_engine.api import create_api
from policy_engine.bodies import BodyReader
from policy_engine.limits import LIMITS
from policy_engine.listeners import Listeners, ListenerSpec
from policy_engine.tls_material import TlsFiles

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
GOOD = json.dumps(review(pod())).encode()
SOON = replace(LIMITS, http_header_s=0.4)


def post(target: str, body: bytes, *, length: int | None = None, headers: str = "") -> bytes:
    length = len(body) if length is None else length
    return f"POST {target} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n".encode() + body


class Api:
    """A real API listener, with the webhook mounted."""

    def __init__(self, folder: Path, world: World) -> None:
        self.database = Database(folder / "api.db")
        self.database.start()
        self.database.create_all()
        self.app = create_api(FakeServices(self.database), clock=time.time_ns, admission=world.app)
        files = TlsFiles(world.folder / "tls.crt", world.folder / "tls.key")
        spec = ListenerSpec("api", self.app, tls=files, keep_alive_s=1, max_connections=8)
        self.listeners = Listeners([spec], drain_linger_s=0.01)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """One that reads as fast as answers come."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.listeners.port("api"), ssl=client_context(None), server_hostname="localhost"
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
async def api(tmp_path: Path, world: World) -> AsyncIterator[Api]:
    made = Api(tmp_path, world)
    await made.listeners.start()
    try:
        yield made
    finally:
        await made.listeners.stop()
        made.database.stop()


async def all_of(reader: asyncio.StreamReader, seconds: float = 5) -> bytes:
    """Everything until the server closes."""
    async with asyncio.timeout(seconds):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_a_pipeline_is_answered_in_order(api: Api) -> None:
    async with api.connect() as (reader, writer):
        writer.write(GET * LIMITS.http_pipeline + GET.replace(b"healthz", b"nothing"))
        got = b""
        while b"404 Not Found" not in got:
            got += await asyncio.wait_for(reader.read(65_536), 5)
    assert LIMITS.http_pipeline == got.partition(b"404 Not Found")[0].count(b"200 OK")


async def test_a_pipeline_has_a_bound(api: Api) -> None:
    for many in (LIMITS.http_pipeline + 2, 50_000):
        async with api.connect() as (reader, writer):
            writer.write(GET * many)
            got = await all_of(reader)
            assert (True, True) == (
                b"400 Bad Request" in got,
                got.count(b"200 OK") <= LIMITS.http_pipeline + 1,
            )


async def test_octets_that_begin_no_request_do_not_hold_a_connection(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "LIMITS", SOON)
    for more in (b"", b"\r\n", b"G"):
        async with api.connect() as (reader, writer):
            writer.write(GET)
            await reader.readuntil(b'{"status":"ok"}')
            writer.write(more)
            assert b"" == await all_of(reader, 3), more


async def test_a_silent_peer_is_let_go_before_tls(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LIMITS", SOON)
    api = Api(tmp_path, world)
    await api.listeners.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.listeners.port("api"))
        assert b"" == await all_of(reader, 3)
        writer.close()
    finally:
        await api.listeners.stop()
        api.database.stop()


@pytest.mark.parametrize("direct", [True, False])
async def test_an_answer_in_a_drain_closes_its_connection(world: World, direct: bool) -> None:
    listener = world.listeners._running["admission"]
    listener.protocol.direct = world.app.direct if direct else None
    submit, due = world.spool.submit, asyncio.Event()

    def held(seq: int, frame: bytes) -> asyncio.Future[None]:
        async def both() -> None:
            await submit(seq, frame)
            await due.wait()

        return asyncio.ensure_future(both())

    world.spool.submit = held  # type: ignore[method-assign]
    async with world.connection("train-us") as peer:
        peer.writer.write(post("/admit/train-us", GOOD))
        while not world.app.metrics.in_flight:
            await asyncio.sleep(0.01)
        listener.drain()
        due.set()
        answer = await peer.reply()
        assert (200, "close") == (answer.status, answer.headers["connection"])
        assert b"" == await all_of(peer.reader)


async def test_what_follows_an_answer_that_closes_is_not_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, asked = protocol.parse, 0

    def defect_at_first(body: bytes) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ValueError("x")
        return parse(body)

    monkeypatch.setattr(protocol, "parse", defect_at_first)
    async with world.connection("train-us") as peer:
        peer.writer.write(post("/admit/train-us", GOOD) * 3)
        got = await all_of(peer.reader)
    assert (1, True) == (got.count(b"HTTP/1.1 "), got.startswith(b"HTTP/1.1 500"))
    assert (1, [], 0) == (asked, world.records(), world.app.metrics.in_flight)


@pytest.mark.parametrize("direct", [True, False])
async def test_a_record_whose_write_is_given_up_leaves_nothing_in_flight(world: World, direct: bool) -> None:
    world.listeners._running["admission"].protocol.direct = world.app.direct if direct else None

    def cancelled(_seq: int, _frame: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, future.cancel)
        return future

    world.spool.submit = cancelled  # type: ignore[method-assign]
    async with world.connection("train-us") as peer:
        peer.writer.write(post("/admit/train-us", GOOD))
        assert (await all_of(peer.reader)).startswith(b"HTTP/1.1 500")
    assert 0 == world.app.metrics.in_flight


async def test_no_body_is_read_for_an_unknown_caller(api: Api) -> None:
    for authorization in ("", "authorization: Bearer sgt_unknown\r\n"):
        async with api.connect() as (reader, writer):
            head = post("/v1/tokens", b"", length=1_000_000, headers=authorization)
            writer.write(head + b" " * 1000)
            got = await asyncio.wait_for(reader.readuntil(b"}"), 3)
            assert b"401 Unauthorized" in got


@pytest.fixture
async def admin(api: Api) -> str:
    text = token(api.database, "adm", ("admin", "*"), now_ns=time.time_ns())
    return f"authorization: Bearer {text}\r\ncontent-type: application/json\r\n"


async def test_a_body_has_bounds_of_size_time_and_number(api: Api, admin: str) -> None:
    api.app.state.bodies = BodyReader(2000, 0.3, 1500)
    for status, octets in (
        (413, post("/v1/tokens", b"", length=2001, headers=admin)),
        (408, post("/v1/tokens", b"", length=1000, headers=admin)),
        (408, post("/v1/tokens", b" ", length=1000, headers=admin)),
        (429, post("/v1/tokens", b" " * 1600, length=1900, headers=admin)),
    ):
        async with api.connect() as (reader, writer):
            writer.write(octets)
            got = await all_of(reader)
            assert f"HTTP/1.1 {status} ".encode() == got[:13], got
            assert b"application/problem+json" in got


@pytest.mark.parametrize("some", [b"", b"{"])
async def test_a_review_of_which_no_more_comes_holds_its_place_for_a_bounded_time(
    tmp_path: Path, some: bytes
) -> None:
    async with running(tmp_path, limits=replace(LIMITS, review_body_s=0.3)) as world:
        async with world.connection("train-us") as peer:
            peer.writer.write(post("/admit/train-us", some, length=1000))
            assert (await all_of(peer.reader)).startswith(b"HTTP/1.1 408 ")
        assert 0 == world.app.metrics.in_flight


async def test_a_review_that_is_too_large_has_one_answer_in_chunks_too(world: World, api: Api) -> None:
    token, chunk = world.tokens["train-us"], b"10000\r\n" + bytes(65_536) + b"\r\n"
    head = f"POST /admit/train-us/{token} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    async with api.connect() as (reader, writer):
        writer.write(head.encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(LIMITS.review_body_bytes // 65_536 + 1):
                writer.write(chunk)
                await writer.drain()
        assert b"HTTP/1.1 413 " == (await reader.readline())[:13]
    assert {"bad_review": 1} == dict(world.app.metrics.refused)
