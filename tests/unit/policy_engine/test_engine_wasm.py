"""The embedded engine: right answers, and no answer in every other case."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import wasmtime
from rules_world import all_cases, answer, compiled, rows, shipped, unordered
from wasmtime import _func as wasmtime_func

from policy_engine.errors import EngineNoResult
from policy_engine.limits import LIMITS
from policy_engine.rules.engine import engine_input
from policy_engine.rules.wasm import WasmEngine, required_builtins

CASES = all_cases()
TRAIN = next(case for case in CASES if case.name == "main/complete: a training job as it stands")
QUICK = replace(LIMITS, engine_deadline_ms=40, engine_tick_ms=2)
SMALL = replace(LIMITS, engine_deadline_ms=5_000, engine_memory_bytes=8 * 1_048_576)


@pytest.fixture(scope="module")
def engine():
    made = WasmEngine(shipped())
    yield made
    made.close()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_shared_case(engine, case):
    assert unordered(case.want) == unordered(answer(engine, case.input.body, case.input.digest))


def test_answers_do_not_depend_on_what_was_asked_before(engine):
    """Every case twice in shuffled order on one instance: the heap is reset in between."""
    rng = random.Random(7)
    asked = CASES * 2
    rng.shuffle(asked)
    for case in asked:
        assert unordered(case.want) == unordered(answer(engine, case.input.body, case.input.digest)), (
            case.name
        )


def test_violations_come_in_canonical_order(engine):
    context = {
        **TRAIN.context,
        "landing": [{"pod": "spec.template.spec", "sites": ["z", "a", "m"], "unmapped": ["q", "b"]}],
    }
    given = engine_input(TRAIN.facts, context, TRAIN.now_ns)
    found = engine.evaluate(given.body, given.digest).violations
    assert len(found) > 8
    assert sorted(found, key=lambda row: row.key) == list(found)


@pytest.mark.parametrize(
    "body",
    [
        b"{bad",
        b"",
        b"null",
        b"[]",
        b"7",
        TRAIN.input.body[:-1],
        TRAIN.input.body[: len(TRAIN.input.body) // 2],
        TRAIN.input.body.replace(b"train", b"tr\xff\xfe", 1),
        b"\xef\xbb\xbf" + TRAIN.input.body,
        TRAIN.input.body.replace(b'"digest":', b'"digost":'),
    ],
    ids=[
        "bad",
        "empty",
        "null",
        "list",
        "number",
        "cut",
        "half",
        "not utf-8",
        "bom",
        "no digest",
    ],
)
def test_input_that_is_not_the_input_has_no_result(engine, body):
    """A module that is given broken JSON answers "no violation": the echo of the digest tells."""
    assert answer(engine, body, TRAIN.input.digest) in (None, [])
    if body.replace(b"tr\xff\xfe", b"train", 1) != TRAIN.input.body:
        assert answer(engine, body, TRAIN.input.digest) is None


def test_bytes_behind_the_input_change_nothing(engine):
    """The module stops reading at the end of the object; what it read carries the digest."""
    assert answer(engine, TRAIN.input.body + b'{"x":1}', TRAIN.input.digest) == []


def test_another_inputs_digest_has_no_result(engine):
    with pytest.raises(EngineNoResult, match="does not belong to this input"):
        engine.evaluate(TRAIN.input.body, "0" * 64)


def test_another_policys_digest_has_no_result():
    other = WasmEngine(replace(shipped(), policy_digest="0" * 64))
    with pytest.raises(EngineNoResult, match="another policy"):
        other.evaluate(TRAIN.input.body, TRAIN.input.digest)
    other.close()


def test_undefined_has_no_result(engine):
    given = engine_input({**TRAIN.facts, "v": 2}, TRAIN.context, TRAIN.now_ns)
    with pytest.raises(EngineNoResult, match="undefined"):
        engine.evaluate(given.body, given.digest)


def test_an_input_over_the_limit_is_refused():
    engine = WasmEngine(shipped(), limits=replace(LIMITS, engine_input_bytes=1_000))
    with pytest.raises(EngineNoResult, match="larger than the limit"):
        engine.evaluate(TRAIN.input.body, TRAIN.input.digest)
    engine.close()


def test_an_answer_over_the_limit_is_refused():
    context = {
        **TRAIN.context,
        "landing": [{"pod": "spec.template.spec", "sites": [f"s{n}" for n in range(200)], "unmapped": []}],
    }
    given = engine_input(TRAIN.facts, context, TRAIN.now_ns)
    for limits in (replace(LIMITS, engine_output_bytes=10_000), replace(LIMITS, engine_violations=50)):
        engine = WasmEngine(shipped(), limits=limits)
        assert answer(engine, given.body, given.digest) is None
        assert answer(engine, TRAIN.input.body, TRAIN.input.digest) == []
        engine.close()


def test_a_long_answer_is_read_whole(engine):
    context = {
        **TRAIN.context,
        "landing": [{"pod": "spec.template.spec", "sites": [f"s{n}" for n in range(500)], "unmapped": []}],
    }
    given = engine_input(TRAIN.facts, context, TRAIN.now_ns)
    found = engine.evaluate(given.body, given.digest).violations
    assert sum(row.rule == "residency.placement" for row in found) == 500


def test_threads_get_their_own_instances(engine):
    wrong: list[str] = []

    def ask():
        for case in CASES[:60]:
            if unordered(case.want) != unordered(answer(engine, case.input.body, case.input.digest)):
                wrong.append(case.name)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(engine._idle) <= LIMITS.engine_instances


def test_a_damaged_module_is_refused():
    with pytest.raises(EngineNoResult, match="cannot be compiled"):
        WasmEngine(replace(shipped(), wasm=shipped().wasm[:-100]))
    with pytest.raises(EngineNoResult, match="cannot be compiled"):
        WasmEngine(replace(shipped(), wasm=b""))


def test_an_absent_entrypoint_is_refused():
    with pytest.raises(EngineNoResult, match="no entrypoint"):
        WasmEngine(shipped(), entrypoint="sluicegate/other")


def test_the_shipped_module_asks_nothing_of_a_host():
    assert required_builtins(shipped().wasm) == ()


LOOP = """package t
result := count(big) if input.slow
result := "quick" if not input.slow
big contains [a, b, c, d] if {
    some a in xs; some b in xs; some c in xs; some d in xs; a == b; b == c; c == d; d < 0
}
xs := numbers.range(1, 100)
"""
GREEDY = """package t
result := count(numbers.range(1, input.n))
"""
SPRINTF = """package t
result := sprintf("%s-%d", [input.name, 7])
"""


@pytest.fixture(scope="module")
def loop():
    return compiled(LOOP)


def closing(engine):
    class Closing:
        def __enter__(self):
            return engine

        def __exit__(self, *_):
            engine.close()

    return Closing()


@pytest.mark.slow
def test_a_policy_that_does_not_end_is_interrupted(loop):
    with closing(WasmEngine(loop, limits=QUICK, entrypoint="t/result")) as engine:
        begun = time.monotonic()
        with pytest.raises(EngineNoResult, match="took too long"):
            engine.run(b'{"slow": true}')
        assert 0.03 < time.monotonic() - begun < 0.6
        assert engine.run(b'{"slow": false}') == b'[{"result":"quick"}]'


@pytest.mark.slow
def test_the_deadline_holds_after_a_pause(loop):
    """The clock sleeps when nobody asks; it must run again for the next question."""
    with closing(WasmEngine(loop, limits=replace(QUICK, engine_tick_ms=1), entrypoint="t/result")) as engine:
        for _ in range(2):
            deadline = time.monotonic() + 5
            while not engine._ticker._parked and time.monotonic() < deadline:
                time.sleep(0.02)
            assert engine._ticker._parked
            begun = time.monotonic()
            with pytest.raises(EngineNoResult, match="took too long"):
                engine.run(b'{"slow": true}')
            assert time.monotonic() - begun < 0.6


@pytest.mark.slow
def test_memory_is_capped():
    with closing(WasmEngine(compiled(GREEDY), limits=SMALL, entrypoint="t/result")) as engine:
        with pytest.raises(EngineNoResult, match="memory cap"):
            engine.run(b'{"n": 10000000}')
        assert b'[{"result":10}]' == engine.run(b'{"n": 10}')


@pytest.mark.slow
def test_an_input_around_the_cap_aborts_and_does_not_allow():
    """The host's own growing fails for one, the module's for the other."""
    limits = replace(SMALL, engine_input_bytes=16 * 1_048_576)
    with closing(WasmEngine(compiled(GREEDY), limits=limits, entrypoint="t/result")) as engine:
        for size, why in ((5_000_000, "memory cap"), (9_000_000, "does not fit")):
            items = b'","'.join([b"x" * 20] * (size // 24))
            with pytest.raises(EngineNoResult, match=why):
                engine.run(b'{"n": 1, "x": ["' + items + b'"]}')
        assert b'[{"result":1}]' == engine.run(b'{"n": 1}')


@pytest.mark.slow
def test_dropped_instances_leave_no_memory(loop):
    """A bound method as a host callback kept 104 kB per dropped instance alive for ever."""
    with closing(
        WasmEngine(loop, limits=replace(QUICK, engine_deadline_ms=1, engine_tick_ms=1), entrypoint="t/result")
    ) as engine:
        seen = []

        def drop(count: int) -> None:
            for _ in range(count):
                seen.append(weakref.ref(engine._idle[-1] if engine._idle else engine._take()))
                with pytest.raises(EngineNoResult):
                    engine.run(b'{"slow": true}')
            gc.collect()

        drop(20)
        before, slots = _resident(), len(wasmtime_func.FUNCTIONS.handles)
        drop(150)
        assert len(wasmtime_func.FUNCTIONS.handles) <= slots + 12
        assert [one for one in seen if one() is not None] == []
        assert _resident() - before < 150 * 40_000


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
def test_a_builtin_that_no_host_supplies_is_refused_at_load():
    with pytest.raises(EngineNoResult, match="sprintf"):
        WasmEngine(compiled(SPRINTF), entrypoint="t/result")


@pytest.mark.slow
def test_a_failing_host_builtin_aborts():
    """Undefined instead of an abort would let a deny rule fall silent."""
    secret = "hvs.secret"

    def sprintf(form, values):
        if values[0] == "boom":
            raise ValueError(secret)
        return form.replace("%s", values[0]).replace("%d", str(values[1]))

    with closing(WasmEngine(compiled(SPRINTF), entrypoint="t/result", host={"sprintf": sprintf})) as engine:
        assert engine.run(b'{"name": "a"}') == b'[{"result":"a-7"}]'
        with pytest.raises(EngineNoResult, match="a builtin of the host failed: ValueError") as caught:
            engine.run(b'{"name": "boom"}')
        assert secret not in str(caught.value)
        assert wasmtime_func.LAST_EXCEPTION is None
        assert engine.run(b'{"name": "b"}') == b'[{"result":"b-7"}]'


@pytest.mark.slow
@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_goes_through_a_builtin_of_the_host(end):
    def sprintf(_form, _values):
        raise end

    with closing(WasmEngine(compiled(SPRINTF), entrypoint="t/result", host={"sprintf": sprintf})) as engine:
        with pytest.raises(end):
            engine.run(b'{"name": "a"}')
        assert not engine._idle, "the instance is gone"


@pytest.mark.slow
def test_a_failure_of_ours_is_never_told_to_another_user_of_wasmtime():
    def sprintf(_form, _values):
        raise ValueError("ours")

    with closing(WasmEngine(compiled(SPRINTF), entrypoint="t/result", host={"sprintf": sprintf})) as engine:
        with pytest.raises(EngineNoResult):
            engine.run(b'{"name": "a"}')
        store = wasmtime.Store()
        module = wasmtime.Module(store.engine, '(module (func (export "f") unreachable))')
        function = wasmtime.Instance(store, module, []).exports(store)["f"]
        with pytest.raises(wasmtime.Trap):
            function(store)


def test_a_forgotten_engine_leaves_no_thread():
    others = set(threading.enumerate())
    made = WasmEngine(shipped())
    (clock,) = set(threading.enumerate()) - others
    del made
    gc.collect()
    clock.join(5)
    assert not clock.is_alive()


def test_rows_of_an_allowed_input(engine):
    assert rows(engine.evaluate(TRAIN.input.body, TRAIN.input.digest)) == []
