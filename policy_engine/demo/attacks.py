"""Makes three tampered copies of a package, in a process of its own.

    python -m policy_engine.demo.attacks STATE PACKAGE OUT

* ``flipped.zip``: one bit in the middle changed.
* ``other-key.zip``: the whole package signed again under a key of the attacker's own.
* ``changed-cell.zip``: one cell of a table changed, and then signed again with the *real* key, as only
  a dishonest operator could.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from evidence.checkpoint import LocalSigner
from evidence.package import attacks
from policy_engine.embedded.evidence_job import Job

TABLE: Final = "decisions"
CELL: Final = (b"false", b"true")


def main() -> int:
    """Entry point."""
    state, package, out = (Path(argument) for argument in sys.argv[1:4])
    octets = package.read_bytes()
    members = attacks.unpack(octets)
    (out / "flipped.zip").write_bytes(attacks.flip(octets, len(octets) * 4))
    mallory = LocalSigner("mallory")
    (out / "other-key.zip").write_bytes(attacks.pack(attacks.recreate(members, mallory)))
    job = Job(state)
    try:
        changed = attacks.sign_again(attacks.change_cell(members, TABLE, *CELL), job.signer())
    finally:
        job.close()
    (out / "changed-cell.zip").write_bytes(attacks.pack(changed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
