"""A webhook in a process of its own, to be killed: sequencer and database run beside it as in production.

    python admission_child.py FOLDER

Prints its port when it serves. Credentials: `FOLDER/token` is the path token of train-us, `FOLDER/server-ca.pem` its CA.
"""

import asyncio
import hashlib
import sys
from pathlib import Path

from admission_world import World, authority

from evidence.database import Database
from evidence.ledger import Ledger
from evidence.sequencer import Sequencer
from policy_engine.admission.identities import ClusterIdentity, Identities


async def main(folder: Path) -> None:
    database = Database(folder / "ledger.db")
    database.start()
    database.create_all()
    ledger = Ledger.open(database, "sluicegate.test/child")
    world = World(folder)
    world.scopes = ledger.ensure_scopes("estate", "acme", "globex")
    digest = hashlib.sha256((folder / "token").read_bytes()).digest()
    world.identities = Identities([ClusterIdentity("train-us", token_hashes={digest: 2**63 - 1})])
    await world.start()
    sequencer = Sequencer(database, ledger, [world.spool])
    (folder / "server-ca.pem").write_bytes(authority("server").cert_pem.bytes())
    print(world.port, flush=True)
    await sequencer.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
