"""The embedded engine: the bundle's Wasm module in this process, about 30 microseconds a decision.

Instances are pooled. Each evaluation has a deadline (the engine's epoch, moved on by one ticker thread)
and a memory cap; an instance that was interrupted, trapped or aborted is dropped, never used again.
A policy that would need a builtin of its host is refused when it is loaded, unless it is given: a
stubbed builtin means "undefined", and an undefined condition in a deny rule means "allowed".
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Final

import wasmtime

from policy_engine.errors import EngineNoResult
from policy_engine.limits import LIMITS, Limits
from policy_engine.rules.bundle import Bundle
from policy_engine.rules.engine import ENTRYPOINT, Result, decode, parse_result
from policy_engine.rules.wasm_instance import Host, PolicyInstance

_PARK_AFTER: Final = 200  # ticks without a question, at least, before the ticker sleeps


class WasmEngine:
    """See the module docstring. Safe for several threads; best used inline on the event loop."""

    name = "wasm"

    def __init__(
        self,
        bundle: Bundle,
        *,
        limits: Limits = LIMITS,
        entrypoint: str = ENTRYPOINT,
        host: Host | None = None,
    ) -> None:
        """Compile the module and make the first instance.

        Args:
            bundle: A trusted bundle.
            limits: Deadline, memory cap, pool size.
            entrypoint: Only tests name another.
            host: Builtins that the host supplies; none on the admission path.

        Raises:
            EngineNoResult: The module cannot be compiled, asks for a missing builtin, or lacks the
                entrypoint.
        """
        self.policy_digest = bundle.policy_digest
        self._limits = limits
        self._entrypoint = entrypoint
        self._host: Host = host or {}
        self._engine, self._module = _compile(bundle.wasm)
        self._ticks = -(-limits.engine_deadline_ms // limits.engine_tick_ms) + 1
        self._ticker = _Ticker(self._engine, limits.engine_tick_ms / 1000, 2 * self._ticks)
        # An engine that is replaced and forgotten must not leave its thread behind.
        weakref.finalize(self, self._ticker.stop)
        self._idle: deque[PolicyInstance] = deque()
        first = self._instance()
        missing = sorted(set(first.builtins.values()) - self._host.keys())
        if missing:
            self.close()
            raise EngineNoResult(f"the policy needs builtins that no host supplies: {', '.join(missing)}")
        self._idle.append(first)

    def evaluate(self, input_bytes: bytes, digest: str) -> Result:
        """See :class:`policy_engine.rules.engine.Engine`."""
        document = decode(self.run(input_bytes))
        if not isinstance(document, list) or len(document) != 1 or not isinstance(document[0], dict):
            raise EngineNoResult("the policy is undefined for this input")
        answer = document[0].get("result")
        return parse_result(answer, self.policy_digest, digest, self._limits.engine_violations)

    def run(self, input_bytes: bytes) -> bytes:
        """Evaluate and return the raw result set.

        Raises:
            EngineNoResult: No answer; the instance is gone.
        """
        if len(input_bytes) > self._limits.engine_input_bytes:
            raise EngineNoResult("the input is larger than the limit")
        instance = self._take()
        self._ticker.wake()
        # A failing evaluation raises before the instance is put back: it is dropped.
        answer = instance.evaluate(input_bytes, self._ticks, self._limits.engine_output_bytes)
        if len(self._idle) < self._limits.engine_instances:
            self._idle.append(instance)
        return answer

    def close(self) -> None:
        """Stop the ticker and drop the instances."""
        self._ticker.stop()
        self._idle.clear()

    def _take(self) -> PolicyInstance:
        try:
            return self._idle.pop()
        except IndexError:
            return self._instance()

    def _instance(self) -> PolicyInstance:
        try:
            return PolicyInstance(
                self._engine, self._module, self._entrypoint, self._limits.engine_memory_bytes, self._host
            )
        except wasmtime.WasmtimeError:
            raise EngineNoResult("no instance of the policy could be made within the memory cap") from None


class _Ticker:
    """Moves the engine's epoch on while questions come; sleeps when there are none.

    The thread first says that it is parked and then looks at the count again; a question counts first
    and then looks whether the thread is parked. So no question is left without a running clock.
    """

    def __init__(self, engine: wasmtime.Engine, seconds: float, longest: int) -> None:
        self._engine = engine
        self._seconds = seconds
        self._park_after = max(_PARK_AFTER, longest)
        self._questions = 0
        self._parked = False
        self._stopped = False
        self._lock = threading.Lock()
        self._bell = threading.Event()
        threading.Thread(target=self._run, name="policy-epoch", daemon=True).start()

    def wake(self) -> None:
        """Say that a question begins."""
        with self._lock:
            self._questions += 1
        if self._parked:
            self._bell.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._bell.set()

    def _run(self) -> None:
        seen, still = -1, 0
        pause = threading.Event()
        while not self._stopped:
            pause.wait(self._seconds)
            self._engine.increment_epoch()
            still = still + 1 if seen == self._questions else 0
            seen = self._questions
            if still >= self._park_after:
                self._park(seen)
                still = 0

    def _park(self, seen: int) -> None:
        self._bell.clear()
        self._parked = True
        if self._questions == seen and not self._stopped:
            self._bell.wait()
        self._parked = False


def _compile(wasm: bytes) -> tuple[wasmtime.Engine, wasmtime.Module]:
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    try:
        return engine, wasmtime.Module(engine, wasm)
    except wasmtime.WasmtimeError:
        raise EngineNoResult("the policy's Wasm module cannot be compiled") from None


def required_builtins(wasm: bytes) -> tuple[str, ...]:
    """Names that a module asks of its host; none for a policy on the admission path."""
    engine, module = _compile(wasm)
    instance = PolicyInstance(engine, module, None, LIMITS.engine_memory_bytes, {})
    return tuple(sorted(instance.builtins.values()))
