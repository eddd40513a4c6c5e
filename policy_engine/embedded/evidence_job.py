"""Import, attribution and export beside a running `up`, in a process that ends.

    python -m policy_engine.embedded.evidence_job STATE import FOLDER
    python -m policy_engine.embedded.evidence_job STATE export TENANT BEGIN_NS END_NS OUT.zip BY

Its libraries (DuckDB, Ibis, ReportLab) never weigh on the control plane. Records go into the outbox in
one transaction; only the sequencer of the running `up` appends them. The ledger's key stays in OpenBao:
this process signs over its own session of the role `ledger`. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from evidence import outbox
from evidence.database import Database
from evidence.errors import Refused
from evidence.logs import get_logger
from evidence.records import Draft
from policy_engine.embedded.logfile import log_to
from policy_engine.embedded.plain import in_words, is_ours
from policy_engine.embedded.state import StateFolder, holder
from policy_engine.errors import SaidNo, StartError

log = get_logger("policy_engine.evidence_job")
SETTLE_SECONDS: Final = 20.0
FOLDER_FILES: Final = ("s3-access.log", "sacct.txt", "tenants.json", "leases.csv")


class Job:
    """One process's work on one state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state
        _endpoints(state)
        self._database = Database(state / "sluicegate.db")
        self._database.start()

    def close(self) -> None:
        """Let go of the database."""
        self._database.stop()

    def import_folder(self, folder: Path) -> dict[str, Any]:
        """Import the S3 access log and the Slurm listing of a folder, and join accesses to jobs."""
        from evidence import attribution_run
        from evidence.sources.importer import Identity, import_log, s3_format, sacct_format
        from evidence.sources.slurm_sacct import Sacct
        from evidence.sources.tenancy import TenantMap

        s3_log, listing, tenants_file, leases_file = (folder / name for name in FOLDER_FILES)
        tenants = TenantMap.from_json(tenants_file.read_bytes())
        leases = attribution_run.read_leases(leases_file.read_bytes())  # before anything is committed
        sources, now, inbox = self._state / "sources", time.time_ns(), outbox.Inbox(self._database)
        imported = [
            import_log(path, fmt, Identity(path.absolute().as_uri()), folder=sources, inbox=inbox, now_ns=now)
            for path, fmt in ((s3_log, s3_format(tenants)), (listing, sacct_format(tenants, Sacct())))
        ]
        results = attribution_run.attribute(
            sources,
            [segment for one in imported for segment in one.segments],
            leases,
            inbox=inbox,
            now_ns=time.time_ns(),
        )
        return {
            "imported": [
                {
                    "source": one.info.name,
                    "lines": one.counts.lines,
                    "rows": one.counts.rows,
                    "quarantined": one.counts.quarantined,
                    "duplicates": one.counts.duplicates,
                    "segments": len(one.segments),
                }
                for one in imported
            ],
            "attribution": {result.scope: dict(result.counts) for result in results},
        }

    def export(self, tenant: str, window: tuple[int, int], out: Path, by: str) -> dict[str, Any]:
        """Export a package of one scope and window; records that it was."""
        from evidence.package.build import export

        self._settle()
        exported = export(
            self._database,
            self.signer(),
            tenant,
            window,
            out,
            sources=self._state / "sources",
            now_ns=time.time_ns(),
        )
        self._commit([exported.draft(by)])
        return {
            "package": str(exported.path),
            "trust": str(exported.trust_path),
            "sha256": exported.sha256,
            "fingerprint": exported.fingerprint,
        }

    def _commit(self, drafts: Sequence[Draft]) -> None:
        self._database.write_sync(lambda conn: [outbox.put(conn, draft) for draft in drafts] and None)

    def _settle(self) -> None:
        """Wait until what stands in the outbox is appended and a signed tick covers it."""
        deadline = time.monotonic() + SETTLE_SECONDS
        mark = time.time_ns()
        while time.monotonic() < deadline:
            waiting = self._scalar("SELECT COUNT(*) FROM outbox_entry")
            signed = self._scalar("SELECT MAX(time_ns) FROM ledger_tick WHERE note IS NOT NULL") or 0
            if waiting == 0 and signed > mark:
                return
            time.sleep(0.1)

    def _scalar(self, statement: str) -> int:
        read: Callable[[Any], Any] = lambda conn: conn.exec_driver_sql(statement).scalar()  # noqa: E731
        return int(self._database.read_sync(read) or 0)

    def signer(self) -> Any:
        """The ledger's key over a session of this process's own."""
        return ledger_signer(self._state)


def ledger_signer(state: Path) -> Any:
    """The signer of a running embedded system: the key stays in OpenBao.

    Entry point of the group ``sluicegate.evidence_signer``: `sluicegate evidence export` finds it there.

    Raises:
        StartError: Nothing runs on this state folder.
    """
    from keymgmt.bao import Address, AppRole, BaoSession
    from keymgmt.custody_openbao import OpenBaoSigner

    if holder(StateFolder(state)) is None:  # what a killed one left still names its addresses
        raise _nothing_runs(state)
    endpoints = _endpoints(state)
    roles = json.loads((state / "openbao" / "roles.json").read_text("utf-8"))["roles"]
    role = AppRole(roles["ledger"]["role_id"], roles["ledger"]["secret_id"])
    return OpenBaoSigner(BaoSession(Address(endpoints["openbao"], Path(endpoints["ca"])), role), "ledger")


def _endpoints(state: Path) -> Mapping[str, Any]:
    file = state / "run" / "endpoints.json"
    if not file.exists():
        raise _nothing_runs(state)
    try:
        found: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
    except ValueError:
        raise StartError(f"{file} cannot be read", fix="start `sluicegate up` anew: it writes it") from None
    return found


def _nothing_runs(state: Path) -> StartError:
    return StartError(f"nothing runs on {state}", fix="start it with `sluicegate up`")


def main(arguments: Sequence[str]) -> int:
    """Entry point; see the module docstring."""
    state, command, *rest = arguments
    job, logs = None, False
    try:
        job = Job(Path(state))
        log_to(Path(state) / "logs", "evidence-job")
        logs = True
        if command == "import":
            told = job.import_folder(Path(rest[0]))
        else:
            tenant, begin, end, out, by = rest
            told = job.export(tenant, (int(begin), int(end)), Path(out), by)
    except Exception as error:  # the edge of the process: whoever started it reads one JSON object
        what, fix = in_words(error)
        told = {"error": what, "fix": fix, "refused": isinstance(error, (Refused, SaidNo))}
        if logs:  # before that a log line would go where the one object is read
            say = log.warning if is_ours(error) else log.exception
            say("evidence_job_failed", command=command, error=type(error).__name__, reason=what, fix=fix)
    finally:
        if job is not None:
            job.close()
    try:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever asked is gone; what was made stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor does the end of the process tell
        return 1
    return 1 if "error" in told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
