"""What several package tests ask: that a package is refused, and what the script of 80 lines says of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from package_world import signer

from evidence.errors import PackageInvalid
from evidence.package.attacks import pack
from evidence.package.model import SCRIPT
from evidence.package.trust import Trust
from evidence.package.verify import verify_octets

MALLORY = signer(66, "ledger")


def refused(members: dict[str, bytes], trust: Trust, step: str, place: str = "") -> PackageInvalid:
    with pytest.raises(PackageInvalid) as caught:
        verify_octets(pack(members), trust)
    assert step == caught.value.step, str(caught.value)
    assert place in str(caught.value)
    return caught.value


def second_path(
    folder: Path, members: dict[str, bytes], octets: bytes, trust: Trust
) -> subprocess.CompletedProcess[str]:
    for name, data in (("p.zip", octets), ("t.json", trust.encode()), ("v.py", members[SCRIPT])):
        (folder / name).write_bytes(data)
    command = [sys.executable, "-I", str(folder / "v.py"), str(folder / "p.zip"), str(folder / "t.json")]
    return subprocess.run(command, capture_output=True, text=True, check=False)
