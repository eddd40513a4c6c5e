"""One instance of a policy compiled to Wasm, driven by a single ABI call (OPA Wasm ABI 1.2: `opa_eval`).

The host copies the input behind the module's data heap and calls `opa_eval` through the unchecked call
of the C API: the arguments are seven integers whose types never change, and checking them costs more
than the evaluation. Three channels can say that it failed, and all three end in EngineNoResult:

1. the trap pointer: the epoch deadline passed, or the module trapped;
2. the returned error pointer: an exception in a host function (its own text says only "python
   exception", so the exception is kept on the instance), `opa_abort` at the memory cap among them;
3. WasmtimeError from the host's own `memory.grow` over the cap.

An instance that failed in any way must be dropped: its heap is in no known state.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import orjson
import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import _func as wasmtime_func

from policy_engine.errors import EngineNoResult

HostBuiltin = Callable[..., Any]
Host = Mapping[str, HostBuiltin]

_PAGE: Final = 65_536  # octets of a Wasm page
_FIRST_READ: Final = 512  # octets: most answers are shorter
_UNBOUNDED: Final = 1_000_000  # ticks: instantiation is not the input's doing
_FORMAT_JSON: Final = 0
_ARGUMENTS: Final = 7  # reserved, entrypoint, data, input, input length, heap, format

# The four calls of every evaluation, bound once, by address: converting typed arguments costs as much as the
# calls. Three keep the GIL (nothing in them waits); the evaluation itself releases it.
_Address: Final = ctypes.c_void_p
_memory_address = ctypes.PYFUNCTYPE(ctypes.c_size_t, _Address, _Address)(("wasmtime_memory_data", ffi.dll))
_memory_size = ctypes.PYFUNCTYPE(ctypes.c_size_t, _Address, _Address)(("wasmtime_memory_data_size", ffi.dll))
_set_deadline = ctypes.PYFUNCTYPE(None, _Address, ctypes.c_uint64)(
    ("wasmtime_context_set_epoch_deadline", ffi.dll)
)
_call_unchecked = ctypes.CFUNCTYPE(_Address, _Address, _Address, _Address, ctypes.c_size_t, _Address)(
    ("wasmtime_func_call_unchecked", ffi.dll)
)
_ERROR: Final = ctypes.POINTER(ffi.wasmtime_error_t)


class PolicyInstance:
    """A store, its memory and the prepared call. Not for two threads at once."""

    def __init__(
        self, engine: wasmtime.Engine, module: wasmtime.Module, entrypoint: str | None, cap: int, host: Host
    ) -> None:
        """Instantiate.

        Args:
            engine: With epoch interruption.
            module: The policy.
            entrypoint: Its name; ``None`` to look at the module only.
            cap: Octets of linear memory.
            host: Builtins of the host.

        Raises:
            EngineNoResult: No such entrypoint.
            WasmtimeError: It does not fit under the cap.
        """
        self.failure: BaseException | None = None
        self._host = host
        self._store = wasmtime.Store(engine)
        self._store.set_limits(memory_size=cap)
        self._store.set_epoch_deadline(_UNBOUNDED)
        self._context = _address(self._store._context())
        self._memory = wasmtime.Memory(self._store, _memory_type(module))
        self._handle = ctypes.addressof(self._memory._memory)  # of a structure that `_memory` keeps alive
        self._exports = wasmtime.Instance(self._store, module, self._imports(module)).exports(self._store)
        self.builtins: dict[int, str] = {number: name for name, number in self._table("builtins").items()}
        number = 0 if entrypoint is None else self._table("entrypoints").get(entrypoint)
        if number is None:
            raise EngineNoResult(f"the policy has no entrypoint {entrypoint}")
        self._entrypoint, self._data = number, self.put_json(b"{}")
        self._base = _aligned(self.call("opa_heap_ptr_get"))
        function = self._exports["opa_eval"]
        assert isinstance(function, wasmtime.Func)
        self._function = function  # keeps alive what `_eval` points to
        self._eval = ctypes.addressof(function._func)
        self._trap: Any = ctypes.POINTER(ffi.wasm_trap_t)()
        self._trap_at = ctypes.addressof(self._trap)
        self._arguments = (ffi.wasmtime_val_raw_t * _ARGUMENTS)()
        values = (0, self._entrypoint, self._data, self._base, 0, 0, _FORMAT_JSON)
        for slot, value in zip(self._arguments, values, strict=True):
            slot.i32 = value
        self._arguments_at = ctypes.addressof(self._arguments)
        self._result, self._size, self._heap = (self._arguments[number] for number in (0, 4, 5))

    def evaluate(self, data: bytes, ticks: int, limit: int) -> bytes:
        """Evaluate the entrypoint once.

        Args:
            data: The input's JSON. Broken JSON is "no input" to the module: the caller checks the echo.
            ticks: Epochs until it is interrupted.
            limit: Most octets of answer.

        Returns:
            JSON of the result set: ``[{"result": ...}]``, ``[]`` when undefined.

        Raises:
            EngineNoResult: By one of the three channels. Drop the instance.
        """
        size, context = len(data), self._context
        heap = _aligned(self._base + size)
        if heap + _PAGE > _memory_size(context, self._handle):
            self._grow(heap + _PAGE)
        ctypes.memmove(_memory_address(context, self._handle) + self._base, data, size)
        self._result.i32 = 0  # the result of the last evaluation came back here
        self._size.i32, self._heap.i32 = size, heap
        _set_deadline(context, ticks)
        error = _call_unchecked(context, self._eval, self._arguments_at, _ARGUMENTS, self._trap_at)
        if error or self._trap:
            self._raise(self._trap, ctypes.cast(error, _ERROR) if error else None)
        return self._text(self._result.i32 & 0xFFFF_FFFF, limit)

    def _raise(self, trap: Any, error: Any) -> None:
        """Free what came back and say which channel it was; never the module's own words."""
        kept, self.failure = self.failure, None
        # The binding keeps the last exception of a host function for its own callers: not for us.
        wasmtime_func.LAST_EXCEPTION = None
        why = "the policy aborted"
        if error:
            wasmtime.WasmtimeError._from_ptr(error)
        if trap:
            code = wasmtime.Trap._from_ptr(trap).trap_code
            late = code == wasmtime.TrapCode.INTERRUPT
            why = "the evaluation took too long" if late else "the policy trapped"
        if isinstance(kept, EngineNoResult) or not isinstance(kept, Exception | None):
            raise kept  # what ends the process is not the policy's failure
        if kept is not None:
            why = f"a builtin of the host failed: {type(kept).__name__}"
        raise EngineNoResult(why) from None

    def _grow(self, end: int) -> None:
        """Make memory reach beyond the input; the module grows it further itself."""
        missing = end - _memory_size(self._context, self._handle)
        try:
            self._memory.grow(self._store, max(0, -(-missing // _PAGE)))
        except wasmtime.WasmtimeError:
            raise EngineNoResult("the input does not fit into the engine's memory") from None

    def _text(self, offset: int, limit: int) -> bytes:
        """A zero-terminated string of the module, never read beyond its memory.

        Size and address are asked each time: growing may move the memory.
        """
        room = _memory_size(self._context, self._handle) - offset
        start = _memory_address(self._context, self._handle) + offset
        for window in (min(_FIRST_READ, room), min(limit + 1, room)):
            if window <= 0:
                break
            raw = ctypes.string_at(start, window)
            end = raw.find(b"\0")
            if end >= 0:
                return raw[:end]
        raise EngineNoResult("the policy's answer is longer than the limit")

    # What follows is for setting up and for host builtins: the checked, slow way.

    def call(self, name: str, *arguments: int) -> int:
        """Call an export of the module."""
        function = self._exports[name]
        assert isinstance(function, wasmtime.Func)
        result = function(self._store, *arguments)
        return 0 if result is None else int(result)

    def put_json(self, raw: bytes) -> int:
        """Parse JSON into a value of the module and return its address."""
        address = self.call("opa_malloc", len(raw))
        ctypes.memmove(_memory_address(self._context, self._handle) + address, raw, len(raw))
        return self.call("opa_json_parse", address, len(raw))

    def get_json(self, address: int) -> Any:
        """A value of the module as Python data."""
        return orjson.loads(self._text(self.call("opa_json_dump", address) & 0xFFFF_FFFF, _PAGE))

    def _table(self, name: str) -> dict[str, int]:
        table: dict[str, int] = self.get_json(self.call(name))
        return table

    def _imports(self, module: wasmtime.Module) -> list[Any]:
        """What the module asks of its host, in its order.

        The closures hold the instance weakly: the binding keeps every host function in a global table
        until the store is freed, and a strong reference from there would keep the store for ever.
        """
        return [
            wasmtime.Func(self._store, item.type, _host_function(weakref.ref(self), str(item.name)))
            if isinstance(item.type, wasmtime.FuncType)
            else self._memory
            for item in module.imports
        ]

    def abort(self) -> NoReturn:
        """The module gave up: at the memory cap, or on a state that it does not expect."""
        raise EngineNoResult("the policy aborted, at the memory cap or by itself")

    def host_call(self, number: int, _context: int, *addresses: int) -> int:
        """Run a builtin of the host; any failure aborts the evaluation, it is never "undefined"."""
        name = self.builtins[number]
        result = self._host[name](*(self.get_json(address) for address in addresses))
        return self.put_json(orjson.dumps(result))


def _host_function(owner: weakref.ref[PolicyInstance], name: str) -> Callable[..., int | None]:
    def guarded(*arguments: int) -> int | None:
        instance = owner()
        assert instance is not None
        try:
            return instance.abort() if name == "opa_abort" else instance.host_call(*arguments)
        except BaseException as error:
            instance.failure = instance.failure or error
            raise

    return guarded


def _memory_type(module: wasmtime.Module) -> wasmtime.MemoryType:
    for item in module.imports:
        if isinstance(item.type, wasmtime.MemoryType):
            return item.type
    raise EngineNoResult("the policy imports no memory")


def _address(pointer: Any) -> int:
    """Where a pointer of the binding points."""
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    assert address is not None
    return address


def _aligned(address: int) -> int:
    return (address + 15) & ~15
