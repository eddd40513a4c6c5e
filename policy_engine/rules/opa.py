"""Running the `opa` command: one place that starts it, reads its output and names what failed."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from policy_engine.errors import BuildRefused, ToolchainError

VERSION: Final = "1.22.3"
INSTALL: Final = "python -m policy_engine.rules.toolchain"
_SHOWN: Final = 4_000  # characters of a child's output that are shown


def cache_dir() -> Path:
    """Folder of this OPA version below the user's cache (XDG_CACHE_HOME, else ~/.cache)."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(root) if Path(root).is_absolute() else Path.home() / ".cache"
    return base / "sluicegate" / "opa" / f"v{VERSION}"


def binary() -> Path:
    """Path of the built OPA.

    Raises:
        ToolchainError: It is not there yet.
    """
    path = cache_dir() / "opa"
    if not os.access(path, os.X_OK):
        raise ToolchainError(f"OPA v{VERSION} is not built yet", fix=f"run `{INSTALL}`")
    return path


def run(arguments: Sequence[str], *, cwd: Path | None = None, timeout_s: float = 120.0) -> str:
    """Run `opa` and return what it printed.

    Args:
        arguments: Without the program.
        cwd: Folder to run in.
        timeout_s: Seconds after which it is killed.

    Raises:
        BuildRefused: It ended with an error; the text is OPA's own.
        ToolchainError: It could not be started or took too long.
    """
    command = [str(binary()), *arguments]
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"opa {arguments[0]} did not run: {type(error).__name__}") from None
    if done.returncode != 0:
        said = (done.stderr.strip() + "\n" + done.stdout.strip()).strip()
        raise BuildRefused(f"opa {arguments[0]} failed:\n{said[:_SHOWN]}")
    return done.stdout


def run_json(arguments: Sequence[str], *, cwd: Path | None = None) -> Any:
    """Run `opa` with JSON output and decode it."""
    return json.loads(run(arguments, cwd=cwd))


def compile_wasm(sources: Path, entrypoint: str, *, capabilities: Path | None = None) -> bytes:
    """Compile a folder of Rego to one Wasm module.

    Args:
        sources: Folder; every .rego below it but tests is compiled.
        entrypoint: Such as ``sluicegate/main/result``.
        capabilities: File that bounds what the policy may use.

    Raises:
        BuildRefused: It does not compile.
        ToolchainError: OPA is missing.
    """
    bounds = [] if capabilities is None else ["--capabilities", str(capabilities.resolve())]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "bundle.tar.gz")
        ignored = ["--ignore", "*_test.rego", "--ignore", "cases"]
        # From inside the folder: the module holds the names of its sources, which must not vary.
        run(["build", "-t", "wasm", "-e", entrypoint, *bounds, *ignored, "-o", str(target), "."], cwd=sources)
        with tarfile.open(target) as tar:
            stream = tar.extractfile("/policy.wasm")
            if stream is None:
                raise BuildRefused("opa build made no policy.wasm")
            return stream.read()
