"""The agents' stream, server side: who speaks is the certificate, bodies are bounded and strict, polls are held."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from control_rig import Rig
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from modelled_ends import A

from keymgmt.counters import Violation
from keymgmt.errors import CouldNotTell
from keymgmt.hub import AgentHub
from keymgmt.limits import Limits
from keymgmt.observed import ViolationReport
from keymgmt.operations import Ack, AckStatus
from keymgmt.permit_request import PermitRequest
from keymgmt.samples import Sample, sign_sample

NONCE = "ab" * 16


class Signer:
    """An agent's private key and its certificate."""

    def __init__(self, *names: str, days: int = 1) -> None:
        self.key: EllipticCurvePrivateKey = generate_private_key(SECP256R1())
        now = dt.datetime.now(dt.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=2))
            .not_valid_after(now + dt.timedelta(days=days))
            .sign(self.key, SHA256())
        )
        self.der = made.public_bytes(Encoding.DER)

    def changed(self, old: bytes, new: bytes) -> Signer:
        """With other octets in the certificate: TLS looks at its signature, the hub no more."""
        assert old in self.der
        self.der = self.der.replace(old, new)
        return self

    def sign(self, octets: bytes) -> bytes:
        return self.key.sign(octets, ECDSA(SHA256()))


class Source:
    def __init__(self) -> None:
        self.requests: list[PermitRequest] = []
        self.fail: Exception | None = None

    async def answer(self, request: PermitRequest) -> bytes:
        if self.fail is not None:
            raise self.fail
        self.requests.append(request)
        return b'{"a permit":true}'


class HubRig(Rig):
    def __init__(self, folder: Path, **limits: Any) -> None:
        super().__init__(folder)
        self.world.now = time.time_ns()
        self.samples: list[Sample] = []
        self.reports: list[ViolationReport] = []
        self.source = Source()
        self.hub = AgentHub(
            database=self.database,
            links=lambda: {self.link.name: self.link},
            bell=self.bell,
            permits=self.source,
            limits=Limits(**({"poll_hold_ms": 150} | limits)),
            clock=lambda: self.world.now,
            on_sample=self.samples.append,
            on_violation=self.reports.append,
        )
        self.agents = {"a": Signer("l1-a"), "b": Signer("l1-b")}

    async def call(
        self, who: Signer | None, doc: Any, path: str = "/agent/v1/poll", method: str = "POST", **more: Any
    ) -> tuple[int, Any]:
        body = doc if isinstance(doc, bytes) else json.dumps(doc).encode()
        return await request(self.hub, who, body, path, method, **more)

    def sample(self, side: str = "a", seq: int = 1, **changes: Any) -> Sample:
        sample = Sample(
            link="l1",
            endpoint=side,
            agent=f"l1-{side}",
            boot_id="boot",
            secy_id="secy-1",
            seq=seq,
            mono_ns=seq,
            wall_ns=seq,
            protect=True,
            encrypt=True,
            validate="strict",
            encoding_an=0,
            tx_key_id="ab" * 16,
            path="open",
            faults=(),
            violation_generation=0,
            counters={"txsc.OutPktsEncrypted": 2**63},
        )
        return sign_sample(replace(sample, **changes), self.agents[side])


async def request(
    hub: AgentHub,
    who: Signer | None,
    body: bytes,
    path: str,
    method: str,
    gone: asyncio.Event | None = None,
    chunks: int = 1,
) -> tuple[int, Any]:
    size = max(1, len(body) // chunks + 1)
    parts = [body[i : i + size] for i in range(0, len(body), size)] or [b""]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        await (gone.wait() if gone is not None else asyncio.Event().wait())
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    state = {} if who is None else {"peer_cert": who.der}
    await hub({"type": "http", "path": path, "method": method, "state": state}, receive, send)
    if not sent:
        return 0, None
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[HubRig]:
    made = HubRig(tmp_path)
    yield made
    made.stop()


def poll(**changes: Any) -> dict[str, Any]:
    doc = {"v": 1, "nonce": NONCE, "boot_id": "boot", "agent_version": "0.1.0", "acks": [], "samples": []}
    return doc | {"violations": []} | changes


async def order(rig: HubRig) -> None:
    """A conductor has journalled the reads of a first keying."""
    await rig.conductor.lead()
    await rig.conductor.reconcile("l1")


async def test_operations_are_handed_out_at_once_and_quote_the_poll(rig: HubRig) -> None:
    await order(rig)
    status, answer = await rig.call(rig.agents["a"], poll())
    assert (200, NONCE) == (status, answer["nonce"])
    (operation,) = answer["operations"]
    assert ("read", NONCE, 1) == (operation["kind"], operation["poll_nonce"], operation["token"])


async def test_a_poll_without_operations_is_held_and_woken_by_the_next_one(rig: HubRig) -> None:
    started = time.monotonic()
    status, answer = await rig.call(rig.agents["a"], poll())
    assert (200, []) == (status, answer["operations"])
    assert time.monotonic() - started >= 0.14
    waiting = asyncio.create_task(rig.call(rig.agents["a"], poll()))
    await asyncio.sleep(0.03)
    await order(rig)
    _status, answer = await waiting
    assert 1 == len(answer["operations"])


async def test_an_agent_that_goes_away_while_held_is_let_go(tmp_path: Path) -> None:
    rig = HubRig(tmp_path, poll_hold_ms=30_000)
    gone = asyncio.Event()
    waiting = asyncio.create_task(rig.call(rig.agents["a"], poll(), gone=gone))
    await asyncio.sleep(0.05)
    gone.set()
    await asyncio.wait_for(waiting, 2)
    rig.stop()


async def test_an_agent_that_goes_away_within_its_body_gets_no_answer(rig: HubRig) -> None:
    sent: list[Any] = []

    async def leaves() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/agent/v1/poll", "method": "POST"}
    await rig.hub(scope | {"state": {"peer_cert": rig.agents["a"].der}}, leaves, send)
    assert [] == sent


async def test_a_stop_answers_every_held_poll(tmp_path: Path) -> None:
    rig = HubRig(tmp_path, poll_hold_ms=30_000)
    waiting = asyncio.create_task(rig.call(rig.agents["a"], poll()))
    await asyncio.sleep(0.05)
    rig.hub.close()
    assert 200 == (await asyncio.wait_for(waiting, 2))[0]
    rig.stop()


async def test_acknowledgements_are_journalled_and_repeats_change_nothing(rig: HubRig) -> None:
    await order(rig)
    _status, answer = await rig.call(rig.agents["a"], poll())
    operation = answer["operations"][0]
    _, result, _ = rig.world.ends[A].run(operation)
    ack = {name: operation[name] for name in ("op_id", "op_seq", "token")}
    ack |= {"status": "done", "result": result, "error": None, "boot_id": "boot"}
    rig.bell.clear("link:l1")
    await rig.call(rig.agents["a"], poll(acks=[ack]))
    assert await rig.bell.wait("link:l1", 0.01), "the conductor need not wait for its next look"
    await rig.call(rig.agents["a"], poll(acks=[ack | {"status": "failed", "result": {}}]))
    assert [("done",)] == [tuple(r) for r in rig.rows("SELECT status FROM operation WHERE side = 'a'")]


async def test_an_agent_cannot_acknowledge_for_the_other_end(rig: HubRig) -> None:
    await order(rig)
    _status, answer = await rig.call(rig.agents["a"], poll())
    ack = {name: answer["operations"][0][name] for name in ("op_id", "op_seq", "token")}
    ack |= {"status": "done", "result": {}, "error": None, "boot_id": "boot"}
    await rig.call(rig.agents["b"], poll(acks=[ack]))
    assert [("pending",)] == [tuple(r) for r in rig.rows("SELECT status FROM operation WHERE side = 'a'")]


async def test_samples_are_kept_newest_first_and_told_to_the_gate(rig: HubRig) -> None:
    samples = [rig.sample(seq=2).to_json(), rig.sample(seq=1).to_json()]
    status, _answer = await rig.call(rig.agents["a"], poll(samples=samples))
    assert 200 == status
    kept = rig.hub.latest_sample("l1", "a")
    assert kept is not None
    assert ([2], 2, "secy-1") == ([s.seq for s in rig.samples], kept.seq, rig.hub.secy_of("l1", "a"))
    assert rig.world.now == rig.hub.last_seen_ns("l1-a")


async def test_violations_are_kept_and_told(rig: HubRig) -> None:
    violation = Violation("clear_sent", "frames in clear", {"txsc.OutPktsProtected": 4})
    await rig.call(rig.agents["b"], poll(violations=[violation.to_json()]))
    (report,) = rig.hub.violations("l1", "b")
    assert ("l1-b", "clear_sent", [report]) == (report.agent, report.violation.code, rig.reports)


async def test_a_new_certificate_is_recorded_once(rig: HubRig) -> None:
    for _ in range(2):
        await rig.call(rig.agents["a"], poll())
    rig.agents["a"] = Signer("l1-a")
    await rig.call(rig.agents["a"], poll())
    found = [public["method"] for kind, public in rig.records() if kind == "agent_enrolled"]
    assert ["approle", "renewal"] == found


async def test_permits_come_from_the_gate_for_the_certificates_own_end_only(rig: HubRig) -> None:
    def wanted(**changes: Any) -> dict[str, Any]:
        doc = {
            "v": 1,
            "nonce": NONCE,
            "boot_id": "boot",
            "link": "l1",
            "endpoint": "a",
            "secy_id": "secy-1",
            "last_order": [0, 0],
            "violation_generation": 0,
            "closed": False,
            "sample": rig.sample().to_json(),
        }
        return doc | changes

    path = "/agent/v1/permit"
    assert (200, {"a permit": True}) == await rig.call(rig.agents["a"], wanted(), path)
    assert "l1-a" == rig.source.requests[0].agent
    forged = replace(rig.sample(encrypt=False), encrypt=True).to_json()
    for expected, who, doc in (
        (400, "b", wanted()),
        (400, "a", wanted(endpoint="b")),
        (400, "a", wanted(sample=rig.sample("b").to_json())),
        (409, "a", wanted(sample=forged)),
    ):
        assert expected == (await rig.call(rig.agents[who], doc, path))[0]
    assert 1 == len(rig.source.requests) == len(rig.samples), (
        "the gate hears of nothing that is not the end's own"
    )
    rig.source.fail = CouldNotTell("the posture is being read")
    assert 503 == (await rig.call(rig.agents["a"], wanted(), path))[0]
    for fault in (
        TimeoutError(),
        ConnectionResetError(),
    ):  # the gate's own: no word about the agent's request
        rig.source.fail = fault
        with pytest.raises(type(fault)):
            await rig.call(rig.agents["a"], wanted(), path)
    rig.hub.permits = None
    assert 503 == (await rig.call(rig.agents["a"], wanted(), path))[0]


def refused(rig: HubRig) -> dict[str, tuple[int, Signer | None, Any]]:
    agent, sample = rig.agents["a"], rig.sample()
    unreadable = Signer("l1-a")
    unreadable.der = unreadable.der[:-1]
    forged = replace(sample, encrypt=False)
    ack = Ack("x", 1, 1, AckStatus.DONE, "boot").to_json()
    violation = Violation("clear_sent", "frames in clear", {}).to_json()
    return {
        "no certificate": (403, None, poll()),
        "a certificate of no declared agent": (403, Signer("stranger"), poll()),
        "a certificate that cannot be read": (403, unreadable, poll()),
        "a certificate on a curve that only TLS knows": (403, Signer("l1-a").changed(*_OTHER_CURVE), poll()),
        "a certificate whose name is no text": (
            403,
            Signer("l1-\u00e9").changed(b"\xc3\xa9", b"\xff\xfe"),
            poll(),
        ),
        "a certificate of another version": (
            403,
            Signer("l1-a").changed(b"\xa0\3\2\1\2", b"\xa0\3\2\1\1"),
            poll(),
        ),
        "a certificate of two names": (403, Signer("l1-a", "l1-b"), poll()),
        "a certificate of no name": (403, Signer(), poll()),
        "an expired certificate": (403, Signer("l1-a", days=-1), poll()),
        "not JSON": (400, agent, b"{bad"),
        "not an object": (400, agent, []),
        "deep nesting": (400, agent, b"[" * 100_000),
        "an unknown field": (400, agent, poll(agent="l1-b")),
        "a missing field": (400, agent, {"v": 1}),
        "another version": (400, agent, poll(v=2)),
        "a nonce that is none": (400, agent, poll(nonce="x")),
        "too many acknowledgements": (400, agent, poll(acks=[ack] * 65)),
        "too many samples": (400, agent, poll(samples=[sample.to_json()] * 65)),
        "too many violations": (400, agent, poll(violations=[violation] * 65)),
        "a malformed acknowledgement": (400, agent, poll(acks=[{"op_id": "x"}])),
        "a sample of the other end": (400, agent, poll(samples=[rig.sample("b").to_json()])),
        "a sample that was changed": (409, agent, poll(samples=[forged.to_json()])),
        "a body of more than a megabyte": (400, agent, b" " * 1_048_577),
    }


_OTHER_CURVE = (
    bytes.fromhex("06082a8648ce3d030107"),
    bytes.fromhex("06082a8648ce3d030104"),
)  # P-256, prime239v1


async def test_what_must_be_refused_is_and_says_why(rig: HubRig) -> None:
    for name, (expected, who, doc) in refused(rig).items():
        status, answer = await rig.call(who, doc)
        assert expected == status, name
        assert answer["error"], name
    assert [] == rig.samples
    assert 404 == (await rig.call(rig.agents["a"], poll(), "/agent/v1/other"))[0]
    assert 405 == (await rig.call(rig.agents["a"], poll(), method="GET"))[0]


async def test_as_many_as_the_bounds_say_are_taken(rig: HubRig) -> None:
    ack = Ack("x", 1, 1, AckStatus.DONE, "boot").to_json()
    samples = [rig.sample(seq=n).to_json() for n in range(64)]
    violation = Violation("clear_sent", "frames in clear", {}).to_json()
    most = poll(acks=[ack] * 64, samples=samples, violations=[violation] * 64)
    assert 200 == (await rig.call(rig.agents["a"], most))[0]


async def test_a_callback_that_fails_does_not_break_the_stream(rig: HubRig) -> None:
    def broken(_sample: Sample) -> None:
        raise RuntimeError

    rig.hub.observed.on_sample = broken
    status, _answer = await rig.call(rig.agents["a"], poll(samples=[rig.sample().to_json()]))
    assert 200 == status
    assert rig.hub.latest_sample("l1", "a") is not None


async def test_a_large_body_in_pieces_is_read_whole(rig: HubRig) -> None:
    samples = [rig.sample(seq=n).to_json() for n in range(1, 40)]
    assert 200 == (await rig.call(rig.agents["a"], poll(samples=samples), chunks=7))[0]
    assert 39 == len(rig.samples)


async def test_an_operation_that_comes_late_in_a_held_poll_has_its_whole_time_to_act(tmp_path: Path) -> None:
    rig = HubRig(tmp_path, poll_hold_ms=5_000, time_to_act_ms=1_000)
    waiting = asyncio.create_task(rig.call(rig.agents["a"], poll()))
    await asyncio.sleep(0.3)
    await order(rig)
    _status, answer = await asyncio.wait_for(waiting, 4)
    (operation,) = answer["operations"]
    assert 1_300 <= operation["time_to_act_ms"] < 4_000
    rig.stop()


async def test_the_newest_poll_of_an_agent_ends_the_older_ones(tmp_path: Path) -> None:
    rig = HubRig(tmp_path, poll_hold_ms=30_000)
    older = [asyncio.create_task(rig.call(rig.agents["a"], poll())) for _ in range(4)]
    await asyncio.sleep(0.1)
    newest = asyncio.create_task(rig.call(rig.agents["a"], poll()))
    found = await asyncio.wait_for(asyncio.gather(*older), 2)
    assert [(200, [])] * 4 == [(status, answer["operations"]) for status, answer in found]
    assert not newest.done()
    rig.hub.close()
    await newest
    rig.stop()


async def test_one_agent_cannot_have_thousands_of_requests_open(tmp_path: Path) -> None:
    rig = HubRig(tmp_path, body_read_ms=200)

    async def stuck() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def slow() -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/agent/v1/poll", "method": "POST"}
        await rig.hub(scope | {"state": {"peer_cert": rig.agents["a"].der}}, stuck, send)
        return int(sent[0]["status"])

    answers = await asyncio.gather(*(slow() for _ in range(1000)))
    assert {408: 8, 429: 992} == {status: answers.count(status) for status in set(answers)}
    assert 200 == (await rig.call(rig.agents["a"], poll()))[0]
    rig.stop()


def nested(levels: int) -> dict[str, Any]:
    return {"x": nested(levels - 1)} if levels > 1 else {}


@pytest.mark.parametrize("result", [{"x": 0.5}, {"\u00e9": 1}, {"x": 2**60}, nested(17), nested(252)])
async def test_a_result_that_no_journal_can_hold_is_refused_as_the_agents_fault(
    rig: HubRig, result: dict[str, Any]
) -> None:
    await order(rig)
    _status, answer = await rig.call(rig.agents["a"], poll())
    ack = {name: answer["operations"][0][name] for name in ("op_id", "op_seq", "token")}
    ack |= {"status": "done", "result": result, "error": None, "boot_id": "boot"}
    assert 400 == (await rig.call(rig.agents["a"], poll(acks=[ack])))[0]
    assert 200 == (await rig.call(rig.agents["a"], poll(acks=[ack | {"result": nested(16)}])))[0]


def test_limits_that_do_not_fit_together_are_refused() -> None:
    for wrong in ({"poll_hold_ms": 40_000}, {"time_to_act_ms": 0}, {"lease_ttl_ms": 3_000}):
        with pytest.raises(ValueError, match="limits"):
            Limits(**wrong)
