"""The embedded engine (see the next commit)."""

from __future__ import annotations

from policy_engine.rules.bundle import Bundle
from policy_engine.rules.engine import Result


class WasmEngine:
    """Evaluates the bundle's Wasm module in this process."""

    name = "wasm"

    def __init__(self, bundle: Bundle) -> None:
        self.policy_digest = bundle.policy_digest

    def evaluate(self, input_bytes: bytes, digest: str) -> Result:
        """See :class:`policy_engine.rules.engine.Engine`."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the ticker and drop the instances."""
