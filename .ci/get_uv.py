"""Prints the path of a `uv` that is pinned in uv.lock, fetching it first where it is missing.

Needs only the standard library (Python 3.11+), so that a machine with Python, git and make is enough.
The wheel's address and SHA-256 stand in uv.lock; a download with another digest is refused.
"""

import hashlib
import io
import os
import platform
import shutil
import stat
import sys
import sysconfig
import tomllib
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def wanted() -> tuple[str, str, str]:
    """Version, address and digest of the wheel for this machine."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    (uv,) = [p for p in lock["package"] if p["name"] == "uv"]
    libc = "musllinux" if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "") else "manylinux"
    for wheel in uv["wheels"]:
        name = wheel["url"].rsplit("/", 1)[1]
        if libc in name and platform.machine() in name and sys.platform == "linux":
            return uv["version"], wheel["url"], wheel["hash"].removeprefix("sha256:")
    raise SystemExit(
        f"uv: no pinned build for {sys.platform} {platform.machine()}. "
        "Install uv by hand (python3 -m pip install uv), then run make again."
    )


def main() -> None:
    """Finds or fetches uv."""
    version, url, digest = wanted()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "sluicegate" / "uv" / version / "uv"
    if not target.exists():
        print(f"fetching uv {version} ...", file=sys.stderr)
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310 - the lock file's own address
                body = answer.read()
        except OSError as e:
            raise SystemExit(
                f"uv: could not fetch it ({e}). "
                "Install it by hand (python3 -m pip install uv), then run make again."
            ) from None
        if hashlib.sha256(body).hexdigest() != digest:
            raise SystemExit("uv: the download is not what uv.lock names: nothing was installed.")
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(body)) as wheel:
            member = next(n for n in wheel.namelist() if n.endswith("/scripts/uv"))
            partial = target.with_name(f"uv.{os.getpid()}")
            with wheel.open(member) as source, partial.open("wb") as out:
                shutil.copyfileobj(source, out)
        partial.chmod(partial.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        partial.replace(target)
    print(target)


if __name__ == "__main__":
    main()
