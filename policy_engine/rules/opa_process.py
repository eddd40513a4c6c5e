"""A real `opa run --server` as a child process: for differential tests and benchmarks.

It serves one bundle file on this machine, with the decision log off. The port is a free one; between
finding it and OPA's taking it another process may be faster, so starting is tried a few times.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from policy_engine.errors import ToolchainError
from policy_engine.rules import opa

_TRIES: Final = 3
_START_S: Final = 20.0  # seconds until it must be healthy
_STOP_S: Final = 5.0  # seconds until it is killed


@contextmanager
def serve(
    bundle: bytes, *, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Serve a bundle until the block ends; gives the server's url.

    Args:
        bundle: The container as `build` packs it.
        options: More options of ``opa run``.
        environment: Of the child; nothing by default but what it is given here.

    Raises:
        ToolchainError: OPA is missing or did not become healthy; holds its last words.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bundle.tar.gz")
        file.write_bytes(bundle)
        log = Path(folder, "log")
        child, url = _start(file, log, options, environment or {})
        try:
            yield url
        finally:
            _stop(child)


def _start(
    file: Path, log: Path, options: Sequence[str], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(_TRIES):
        port = _free_port()
        address = f"127.0.0.1:{port}"
        quiet = ["--log-level", "error", "--disable-telemetry", "--skip-version-check"]
        command = [str(opa.binary()), "run", "--server", "--addr", address, *quiet, *options, "-b", str(file)]
        with log.open("wb") as sink:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=file.parent,
                env=dict(environment),
            )
        if _healthy(child, f"http://{address}"):
            return child, f"http://{address}"
        _stop(child)
    said = log.read_text(encoding="utf-8", errors="replace")[-1_000:]
    raise ToolchainError(f"opa run --server did not become healthy: {said}")


def _healthy(child: subprocess.Popen[bytes], url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + _START_S
    while time.monotonic() < end and child.poll() is None:
        try:
            with opener.open(f"{url}/health?bundles", timeout=1) as answer:
                if answer.status == 200:
                    return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
