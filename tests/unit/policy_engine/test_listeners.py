"""Listeners over real TLS: material swapped by content, a bad pair never served, drains without a failure."""

import asyncio
import contextlib
import datetime as dt
import itertools
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from policy_engine.errors import TlsMaterialError
from policy_engine.limits import LIMITS
from policy_engine.listeners import Listeners, ListenerSpec, stop_on_signals
from policy_engine.tls_material import ReloadingContext, TlsFiles

Reply = tuple[int, dict[str, str], bytes]


class Material:
    """A server CA with files on disk, as a mounted secret would be."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.cert, self.key, self.client_ca = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.write(self.ca.issue_cert("localhost", "127.0.0.1"))

    def write(self, leaf: trustme.LeafCert) -> None:
        self.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        self.key.write_bytes(leaf.private_key_pem.bytes())

    def trust(self, *clients: trustme.CA) -> None:
        self.client_ca.write_bytes(b"".join(ca.cert_pem.bytes() for ca in clients))

    def files(self, client_ca: bool = False) -> TlsFiles:
        return TlsFiles(self.cert, self.key, self.client_ca if client_ca else None)

    def client(self, leaf: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if leaf is not None:
            leaf.configure_cert(context)
        return context


@pytest.fixture
def material(tmp_path: Path) -> Material:
    return Material(tmp_path)


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await receive()
    peer = scope["state"].get("peer_cert", b"")
    body = b"%d" % len(peer)
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    """A keep-alive HTTP/1.1 client that shows what went over the wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext | None) -> "Client":
        name = "localhost" if context else None
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name))

    async def get(self, path: str = "/") -> Reply:
        self.writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        return await self.reply()

    async def reply(self) -> Reply:
        status = int((await self.reader.readline()).split()[1])
        headers: dict[str, str] = {}
        while (line := (await self.reader.readline()).strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name] = value.strip()
        return status, headers, await self.reader.readexactly(int(headers["content-length"]))

    def serial(self) -> bytes:
        der: bytes = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return der

    async def close(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def serving(*specs: ListenerSpec, **options: Any) -> AsyncIterator[Listeners]:
    listeners = Listeners(specs, drain_linger_s=0.05, **options)
    await listeners.start()
    try:
        yield listeners
    finally:
        await listeners.stop()


async def test_three_listeners_on_one_loop_start_and_stop_together(material: Material) -> None:
    specs = [ListenerSpec(name, echo, tls=material.files()) for name in ("admission", "api", "agents")]
    async with serving(*specs) as listeners:
        ports = {listeners.port(spec.name) for spec in specs}
        assert len(ports) == 3
        for port in ports:
            client = await Client.connect(port, material.client())
            assert (await client.get())[0] == 200
            await client.close()
    for port in ports:
        with pytest.raises(OSError):
            await Client.connect(port, None)


async def test_a_taken_address_stops_the_others_and_not_the_process(material: Material) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = Listeners([ListenerSpec("a", echo), ListenerSpec("b", echo, port=port)])
        with pytest.raises(OSError):
            await listeners.start()


async def test_the_peer_certificate_stands_in_the_scope(material: Material) -> None:
    clients = trustme.CA()
    material.trust(clients)
    leaf = clients.issue_cert(common_name="apiserver")
    spec = ListenerSpec("admission", echo, tls=material.files(client_ca=True), client_cert="optional")
    async with serving(spec) as listeners:
        with_cert = await Client.connect(listeners.port("admission"), material.client(leaf))
        assert int((await with_cert.get())[2]) > 300
        without = await Client.connect(listeners.port("admission"), material.client())
        assert (await without.get())[2] == b"0"


async def refused(port: int, context: ssl.SSLContext) -> bool:
    """Whether the server ends the connection without an answer (TLS 1.3 tells the client late)."""
    try:
        client = await Client.connect(port, context)
        await client.get()
    except (OSError, IndexError, asyncio.IncompleteReadError):
        return True
    return False


@pytest.mark.parametrize("mode", ["optional", "required"])
async def test_a_certificate_of_an_unknown_authority_gets_no_answer(material: Material, mode: Any) -> None:
    material.trust(trustme.CA())
    spec = ListenerSpec("x", echo, tls=material.files(client_ca=True), client_cert=mode)
    stranger = trustme.CA().issue_cert(common_name="stranger")
    async with serving(spec) as listeners:
        assert await refused(listeners.port("x"), material.client(stranger))
        assert await refused(listeners.port("x"), material.client()) is (mode == "required")


async def test_a_new_certificate_serves_new_connections_and_drops_none(material: Material) -> None:
    async with serving(ListenerSpec("api", echo, tls=material.files())) as listeners:
        port = listeners.port("api")
        before = await Client.connect(port, material.client())
        await before.get()
        material.write(material.ca.issue_cert("localhost", "127.0.0.1"))
        assert await listeners.reload() == ["api"]
        assert await listeners.reload() == []
        after = await Client.connect(port, material.client())
        assert after.serial() != before.serial()
        assert (await before.get())[0] == 200, "the open connection goes on"


@pytest.mark.parametrize("damage", ["mismatched key", "half a file", "empty", "gone", "expired"])
async def test_bad_material_keeps_the_old_certificate_serving(material: Material, damage: str) -> None:
    async with serving(ListenerSpec("api", echo, tls=material.files())) as listeners:
        port = listeners.port("api")
        old = (await Client.connect(port, material.client())).serial()
        good_key = material.key.read_bytes()
        if damage == "mismatched key":
            other = trustme.CA().issue_cert("localhost")
            material.key.write_bytes(other.private_key_pem.bytes())
        elif damage == "half a file":
            material.cert.write_bytes(material.cert.read_bytes()[:200])
        elif damage == "empty":
            material.cert.write_bytes(b"")
        elif damage == "gone":
            material.cert.unlink()
        else:
            past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
            material.write(
                material.ca.issue_cert("localhost", not_after=past, not_before=past - dt.timedelta(1))
            )
        assert await listeners.reload() == []
        again = await Client.connect(port, material.client())
        assert again.serial() == old
        assert (await again.get())[0] == 200
        # The repair is picked up, also when only the other file changes back.
        material.key.write_bytes(good_key)
        material.write(material.ca.issue_cert("localhost", "127.0.0.1"))
        assert await listeners.reload() == ["api"]


async def test_client_authorities_are_swapped_as_well(material: Material) -> None:
    first, second = trustme.CA(), trustme.CA()
    material.trust(first)
    one, two = first.issue_cert(common_name="one"), second.issue_cert(common_name="two")
    spec = ListenerSpec("agents", echo, tls=material.files(client_ca=True), client_cert="required")
    async with serving(spec) as listeners:
        port = listeners.port("agents")
        assert (await (await Client.connect(port, material.client(one))).get())[0] == 200
        assert await refused(port, material.client(two))
        material.trust(second)
        assert await listeners.reload() == ["agents"]
        assert (await (await Client.connect(port, material.client(two))).get())[0] == 200
        assert await refused(port, material.client(one)), "a removed authority opens nothing any more"


async def test_client_authorities_that_are_no_text_keep_the_old_ones(material: Material) -> None:
    good, one = trustme.CA(), "one"
    material.trust(good)
    leaf = good.issue_cert(common_name=one)
    spec = ListenerSpec("agents", echo, tls=material.files(client_ca=True), client_cert="required")
    async with serving(spec) as listeners:
        port = listeners.port("agents")
        material.client_ca.write_bytes(b"\xff\xfe" + material.client_ca.read_bytes())
        assert await listeners.reload() == []
        assert await listeners.reload() == []
        assert (await (await Client.connect(port, material.client(leaf))).get())[0] == 200
        material.trust(good, trustme.CA())
        assert await listeners.reload() == ["agents"]


async def test_a_removed_authority_is_not_resumed_into(material: Material) -> None:
    clients = trustme.CA()
    material.trust(clients)
    spec = ListenerSpec("agents", echo, tls=material.files(client_ca=True), client_cert="required")
    async with serving(spec) as listeners:
        client = await Client.connect(
            listeners.port("agents"), material.client(clients.issue_cert(common_name="a"))
        )
        await client.get()
        assert client.writer.get_extra_info("ssl_object").session.has_ticket is False


def test_material_that_cannot_serve_does_not_start(material: Material) -> None:
    material.key.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    with pytest.raises(TlsMaterialError) as info:
        ReloadingContext(material.files(), "none")
    assert "PRIVATE" not in str(info.value)
    assert info.value.fix


def test_material_that_changes_while_it_is_read_does_not_serve(material: Material) -> None:
    authority, reads = trustme.CA().cert_pem.bytes().decode(), itertools.count()
    restless = replace(material.files(), client_ca=lambda: authority + "\n" * next(reads))
    with pytest.raises(TlsMaterialError, match="changed while they were read"):
        ReloadingContext(restless, "optional")
    ReloadingContext(replace(restless, client_ca=lambda: authority), "optional")


async def test_stopping_answers_what_was_read_and_says_close(material: Material) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await release.wait()
        await echo(scope, receive, send)

    listeners = Listeners([ListenerSpec("api", slow, tls=material.files())], drain_linger_s=0.2)
    await listeners.start()
    port = listeners.port("api")
    busy = await Client.connect(port, material.client())
    answer = asyncio.create_task(busy.get())
    await entered.wait()
    stopping = asyncio.create_task(listeners.stop())
    await asyncio.sleep(0.05)
    late = await Client.connect(port, material.client())
    late_answer = asyncio.create_task(late.get())
    await asyncio.sleep(0.05)
    release.set()
    status, headers, _ = await late_answer
    assert (status, headers.get("connection")) == (200, "close"), "a connection during the drain is served"
    assert (await answer)[0] == 200
    await asyncio.wait_for(stopping, 5)
    with pytest.raises(OSError):
        await Client.connect(port, None)


async def test_sigterm_under_load_fails_no_request(material: Material) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    unready: list[bool] = []
    listeners = Listeners([ListenerSpec("api", echo, tls=material.files())], drain_linger_s=0.2)
    await listeners.start()
    served = asyncio.create_task(listeners.serve_until(stop, before_drain=lambda: unready.append(True)))
    port, context = listeners.port("api"), material.client()

    async def load() -> int:
        client = await Client.connect(port, context)
        done = 0
        while True:
            status, headers, _ = await client.get()
            assert status == 200
            done += 1
            if headers.get("connection") == "close":
                return done

    workers = [asyncio.create_task(load()) for _ in range(8)]
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    counts = await asyncio.wait_for(asyncio.gather(*workers), 10)
    await asyncio.wait_for(served, 10)
    assert min(counts) > 0
    assert unready == [True]
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


async def test_endless_headers_are_cut_off(material: Material) -> None:
    async with serving(ListenerSpec("api", echo)) as listeners:
        client = await Client.connect(listeners.port("api"), None)
        client.writer.write(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for _ in range(2_000):
                client.writer.write(b"x-filler: " + b"a" * 1_000 + b"\r\n")
                await client.writer.drain()
        with contextlib.suppress(OSError):
            assert b" 200 " not in await client.reader.read()


async def test_headers_end_within_their_bound_or_are_refused(material: Material) -> None:
    start, end = b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"\r\n\r\n"
    filler = b"x-filler: ".ljust(LIMITS.http_header_bytes - len(start + end), b"a")
    posted = start.replace(b"GET", b"POST") + b"content-length: %d\r\n\r\n" % len(filler)
    async with serving(ListenerSpec("api", echo)) as listeners:
        for head, rest, status in (
            (start + filler, end, b"200"),
            (start + filler + b"a" * (len(end) + 1), b"", b"400"),
            (start + filler + end, b"", b"200"),
            (start + filler + b"a" + end, b"", b"400"),
            (posted + filler, b"", b"200"),
        ):
            client = await Client.connect(listeners.port("api"), None)
            client.writer.write(head)
            await asyncio.sleep(0.1)
            client.writer.write(rest)
            line = await asyncio.wait_for(client.reader.readline(), LIMITS.http_header_s / 2)
            assert line.split()[1] == status


async def test_connections_over_the_limit_are_closed(material: Material) -> None:
    async with serving(ListenerSpec("api", echo, max_connections=2)) as listeners:
        port = listeners.port("api")
        held = [await Client.connect(port, None) for _ in range(2)]
        for client in held:
            assert (await client.get())[0] == 200
        third = await Client.connect(port, None)
        assert await third.reader.read() == b""


def test_the_same_on_uvloop(material: Material) -> None:
    checks: list[Callable[[Material], Awaitable[None]]] = [
        test_a_new_certificate_serves_new_connections_and_drops_none,
        test_client_authorities_are_swapped_as_well,
        test_stopping_answers_what_was_read_and_says_close,
        test_sigterm_under_load_fails_no_request,
    ]
    for check in checks:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(check(material))
