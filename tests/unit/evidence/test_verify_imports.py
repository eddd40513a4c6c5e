"""What a verifier needs imports with the standard library, cryptography and orjson only."""

from __future__ import annotations

import subprocess
import sys
import textwrap

CODE = """
    import sys

    class OnlyThese:
        allowed = {"evidence", "cryptography", "_cffi_backend", "cffi", "orjson"} | set(sys.stdlib_module_names)

        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] not in self.allowed:
                raise ImportError(f"a verifier must not need {name}")

    sys.meta_path.insert(0, OnlyThese())
    import evidence.canonical, evidence.checkpoint, evidence.errors, evidence.kinds, evidence.limits
    import evidence.merkle, evidence.records, evidence.scope, evidence.scopemap, evidence.signing
    loaded = {"asyncio", "socket", "ssl", "sqlite3", "subprocess"} & set(sys.modules)
    assert not loaded, loaded
"""


def test_the_verifying_side_stands_alone():
    done = subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(CODE)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
