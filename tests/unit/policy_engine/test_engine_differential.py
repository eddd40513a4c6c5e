"""Both engines give the same answer to the same question: a real OPA server is the oracle."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace

import orjson
import pytest
from rules_world import (
    CONTAINER,
    NOW,
    all_cases,
    answer,
    estate,
    example_questions,
    mutated,
    postures,
    sample_requests,
    shipped,
    unordered,
)

from evidence.errors import NotCanonical
from policy_engine.context import context as context_of
from policy_engine.errors import EngineNoResult
from policy_engine.facts import NoLookup
from policy_engine.facts import facts as facts_of
from policy_engine.limits import LIMITS
from policy_engine.rules import opa, opa_process
from policy_engine.rules.engine import engine_input
from policy_engine.rules.opa_server import OpaServerEngine
from policy_engine.rules.wasm import WasmEngine

pytestmark = pytest.mark.slow
PATIENT = replace(LIMITS, opa_deadline_s=20.0, engine_deadline_ms=5_000)


@pytest.fixture(scope="module")
def url():
    with opa_process.serve(CONTAINER.read_bytes()) as address:
        yield address


@pytest.fixture(scope="module")
def server(url):
    engine = OpaServerEngine(url, shipped(), limits=PATIENT)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def wasm():
    engine = WasmEngine(shipped(), limits=PATIENT)
    yield engine
    engine.close()


def test_every_shared_case(server, wasm):
    for case in all_cases():
        body, digest = case.input.body, case.input.digest
        assert unordered(case.want) == unordered(answer(server, body, digest)), case.name
        assert answer(wasm, body, digest) == answer(server, body, digest), case.name


def test_every_example_under_every_posture(server, wasm):
    denied = allowed = 0
    for name, facts, context in example_questions():
        given = engine_input(facts, context, NOW)
        found = answer(wasm, given.body, given.digest)
        assert found == answer(server, given.body, given.digest), name
        assert found is not None, f"{name}: facts and context must always be complete"
        allowed += found == []
        denied += found != []
    assert allowed > 0 < denied


@pytest.mark.samples
def test_every_public_sample(server, wasm, samples):
    """Objects that nobody here wrote: always a complete answer, the same on both."""
    seen = set()
    for name, request in sample_requests(samples):
        facts = facts_of(request, NoLookup(), cluster="train-us")
        given = engine_input(facts, context_of(facts, estate(), postures()), NOW)
        found = answer(wasm, given.body, given.digest)
        assert found is not None, name
        assert found == answer(server, given.body, given.digest), name
        seen |= {row["rule"] for row in found}
    assert {"tenancy.undeclared", "encryption.store"} <= seen


def test_odd_inputs(server, wasm):
    """Cases with places dropped, repeated or replaced: never an answer here and none there."""
    rng = random.Random(20261)
    answers = {True: 0, False: 0}
    for _ in range(600):
        case = rng.choice(all_cases())
        odd = mutated({"facts": case.facts, "context": case.context}, rng)
        try:
            given = engine_input(odd["facts"], odd["context"], case.now_ns)
        except NotCanonical:
            continue
        found = answer(wasm, given.body, given.digest)
        assert found == answer(server, given.body, given.digest), orjson.dumps(odd)
        answers[found is None] += 1
    assert min(answers.values()) > 50


def test_broken_json_has_no_result(server):
    for body in (b"{bad", b"", b"null", b"[]", b"7"):
        with pytest.raises(EngineNoResult):
            server.evaluate(body, "0" * 64)


def test_a_server_with_another_policy_has_no_result(url):
    other = OpaServerEngine(url, replace(shipped(), policy_digest="0" * 64), limits=PATIENT)
    case = all_cases()[0]
    with pytest.raises(EngineNoResult, match="another policy"):
        other.evaluate(case.input.body, case.input.digest)
    other.close()


def test_a_closed_engine_has_no_result(url):
    engine = OpaServerEngine(url, shipped())
    engine.close()
    case = all_cases()[0]
    with pytest.raises(EngineNoResult, match="closed"):
        engine.evaluate(case.input.body, case.input.digest)


def test_the_server_ends_with_the_block():
    with opa_process.serve(CONTAINER.read_bytes()) as address:
        port = address.rpartition(":")[2]
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not any(str(opa.binary()) in line and f"127.0.0.1:{port}" in line for line in listed.splitlines())
