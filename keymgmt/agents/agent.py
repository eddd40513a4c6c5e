"""One agent: four loops around one data plane, none of which waits for another.

* *poll*: asks the control plane for operations, carries them out, reports (may hang for 25 s);
* *permit*: pulls an order at a third of a permit's life, at once after a violation or a new SecY lifetime;
* *check*: reads the data plane, judges it, renews the opening or drops it; needs no network at all;
* *renew*: keeps the OpenBao token and the certificate fresh.

Control plane and OpenBao may be away: the check loop goes on by what is held. The agent may die: the opening
ends by itself in the data plane. The data plane may die: the agent finds another SecY lifetime and says so.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import secrets
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from evidence.logs import configure, get_logger
from keymgmt.agents.client import Connection, Interrupted
from keymgmt.agents.config import VERSION, AgentConfig
from keymgmt.agents.executor import Executor
from keymgmt.agents.fence import Fence, Polls
from keymgmt.agents.identity import Candidate, Identity
from keymgmt.agents.keeper import Keeper, keyed
from keymgmt.agents.state import Burnt, SampleNumbers, StateFolder
from keymgmt.agents.vault import Vault
from keymgmt.counters import Violation
from keymgmt.drivers import SakDriver
from keymgmt.drivers.software import SoftwareDriver
from keymgmt.drivers.software_ports import boottime_ns
from keymgmt.endstate import Reading
from keymgmt.errors import (
    CouldNotTell,
    DriverRefused,
    DriverUnavailable,
    DriverUnreadable,
    KeymgmtError,
    MessageRefused,
)
from keymgmt.operations import Ack, Operation
from keymgmt.permit import Expected, Permit, PermitKind, verify
from keymgmt.permit_request import PermitRequest
from keymgmt.processes import boot_id, keep_out_of_core_files, where
from keymgmt.samples import Sample, sign_sample

_MS: Final = 1_000_000
REPORTS_KEPT: Final = 64  # newest violations not yet delivered; the hub takes as many in one poll
ACKS_SENT: Final = 64  # acknowledgements in one poll; the hub takes no more


class Agent:
    """One end of one link."""

    def __init__(self, config: AgentConfig, driver: SakDriver | None = None) -> None:
        self.config = config
        self.driver: SakDriver = driver if driver is not None else SoftwareDriver(config.control)
        self.state = StateFolder(config.folder)
        self.boot_id = boot_id()
        self.identity = Identity.load(config.folder)
        self.vault = Vault(config.openbao, config.bao, lambda: self.identity)
        self.burnt = Burnt(self.state)
        self.polls = Polls()
        self.keeper = Keeper(self.state, boot_id=self.boot_id, clean_ms=config.timers.clean_ms)
        self.executor = Executor(
            config,
            self.driver,
            self.vault,
            Fence(self.state, config.link),
            self.burnt,
            boot_id=self.boot_id,
            take_sample=lambda: self._signed(self._sample(self.driver.read())).to_json(),
        )
        self._numbers = SampleNumbers(self.state)
        self._log = get_logger("agent").bind(agent=config.name, link=config.link)
        self._stop, self._pull_now = threading.Event(), threading.Event()
        self._opening, self._reporting = threading.Lock(), threading.Lock()
        self._latest: Sample | None = None
        self._said: tuple[PermitKind, str] | None = None
        self._unreadable = False
        self._reports: deque[Violation] = deque(maxlen=REPORTS_KEPT)
        self._acks: list[Ack] = []
        timers = config.timers
        self._poll_retry_ms = timers.poll_retry_ms
        self._poll_connection = self._connection(timers.poll_timeout_ms)
        self._permit_connection = self._connection(timers.permit_timeout_ms)

    def run(self) -> None:
        """Run all loops until `stop`."""
        passes = (self._poll_pass, self._permit_pass, self._check_pass, self._renew_pass)
        threads = [threading.Thread(target=self._loop, args=(one,), daemon=True) for one in passes]
        for thread in threads:
            thread.start()
        self._log.info("agent_started", secy=self.driver.facts.name, epoch=self.keeper.standing.order[0])
        self._stop.wait()
        self._poll_connection.interrupt()
        self._permit_connection.interrupt()
        for thread in threads:
            thread.join(2.0)

    def stop(self, *_: object) -> None:
        """End all loops. The opening is not renewed any more and ends within arm."""
        self._stop.set()
        self._pull_now.set()

    def _loop(self, one: Callable[[], None]) -> None:
        """Make one pass after another; no bug ends a loop, and none is silent."""
        while not self._stop.is_set():
            try:
                one()
            except Exception as bug:  # a dead loop would be an agent that lives and does nothing
                self._log.error("pass_failed", what=one.__name__, error=where(bug))
                self._stop.wait(1.0)

    # --- poll

    def _poll_pass(self) -> None:
        timers = self.config.timers
        try:
            self.poll()
            self._poll_retry_ms = timers.poll_retry_ms
        except Interrupted:
            return
        except KeymgmtError as error:
            self._log.debug("poll_failed", why=str(error))
            self._stop.wait(self._poll_retry_ms / 1000)
            self._poll_retry_ms = min(2 * self._poll_retry_ms, timers.poll_retry_max_ms)

    def poll(self) -> int:
        """Poll once and carry out what comes; return how many operations came."""
        with self._reporting:
            reports = list(self._reports)
        nonce, acks = secrets.token_hex(16), self._acks[:ACKS_SENT]
        self.polls.sent(nonce, boottime_ns())
        sample = self._latest
        answer = self._poll_connection.post(
            "/agent/v1/poll",
            {
                "v": 1,
                "nonce": nonce,
                "boot_id": self.boot_id,
                "agent_version": VERSION,
                "acks": [ack.to_json() for ack in acks],
                "samples": [self._signed(sample).to_json()] if sample is not None else [],
                "violations": [report.to_json() for report in reports],
            },
        )
        self._delivered(acks, reports)
        operations = _operations(answer, nonce)
        for operation in operations:
            ack = self.executor.run(operation, self.polls, boottime_ns())
            self._acks.append(ack)
            self._log.info(
                "operation",
                op_id=operation.op_id,
                kind=str(operation.kind),
                rotation=operation.rotation,
                status=str(ack.status),
                code=ack.error["code"] if ack.error else None,
            )
        return len(operations)

    def _delivered(self, acks: list[Ack], reports: list[Violation]) -> None:
        self._acks = self._acks[len(acks) :]
        with self._reporting:
            for report in reports:
                if report in self._reports:
                    self._reports.remove(report)

    # --- permit

    def _permit_pass(self) -> None:
        self._pull_now.clear()
        wait_ms = self.config.timers.permit_retry_ms
        try:
            kind = self.pull()
            permit = self.keeper.standing.permit
            if kind is PermitKind.REOPEN:
                wait_ms = 50  # what may open comes with the next pull
            if kind is PermitKind.PERMIT and permit is not None:
                wait_ms = max(50, min(permit.ttl_ms // 3, 30_000))
        except KeymgmtError as error:
            self._log.debug("no_permit", why=str(error))
        except OSError as full:  # an order that cannot be kept is not in force; a close is, whatever happens
            self._log.error("state_unwritable", fix="free space in the agent's folder", error=_name_of(full))
        self._pull_now.wait(wait_ms / 1000)

    def pull(self) -> PermitKind:
        """Ask the gate once, verify its answer and put it in force.

        Raises:
            KeymgmtError: no answer, or one that does not verify; what stood stands.
        """
        sample = self._signed(self._sample(self.driver.read()))
        standing, nonce = self.keeper.standing, secrets.token_hex(16)
        request = PermitRequest(
            agent=self.config.name,
            link=self.config.link,
            endpoint=self.config.endpoint,
            nonce=nonce,
            boot_id=self.boot_id,
            secy_id=sample.secy_id,
            last_order=standing.order,
            violation_generation=self.keeper.violations,
            closed=standing.closed,
            sample=sample,
        )
        asked_ns = boottime_ns()
        answer = self._permit_connection.post("/agent/v1/permit", request.to_json())
        permit = verify(
            answer,
            Expected(
                roots=self.config.permit_roots,
                link=self.config.link,
                endpoint=self.config.endpoint,
                boot_id=self.boot_id,
                secy_id=sample.secy_id,
                nonce=nonce,
                last_order=self.keeper.standing.order,
                violation_generation=self.keeper.violations,
                now_ns=time.time_ns(),
            ),
        )
        with self._opening:  # the check loop cannot renew between the drop and the durable close
            if permit.kind is PermitKind.CLOSE:
                self._drop()
            self.keeper.accept(permit, asked_ns)
        self._say(permit)
        return permit.kind

    def _say(self, permit: Permit) -> None:
        """Log an order; a permit that only renews the one before is noise."""
        news, self._said = (permit.kind, permit.reason) != self._said, (permit.kind, permit.reason)
        log = self._log.info if news else self._log.debug
        log("order", kind=str(permit.kind), epoch=permit.epoch, seq=permit.seq, reason=permit.reason)

    # --- check

    def _check_pass(self) -> None:
        started = time.monotonic()
        self.check()
        self._stop.wait(max(0.0, self.config.timers.check_ms / 1000 - (time.monotonic() - started)))

    def check(self) -> None:
        """Look once: confirm or dismiss a suspicion, then renew the opening or drop it."""
        try:
            sample = self._sample(self.driver.read())
            suspicion = self.keeper.judge(sample)
            if suspicion is not None:
                sample = self._sample(self.driver.read())  # the second sample
                suspicion = self.keeper.judge(sample)
            if suspicion is not None:
                self._drop()
            report = self.keeper.settle(sample, suspicion)
            if self.keeper.unsaved:
                self._log.error(
                    "state_unwritable", what="a violation", fix="free space in the agent's folder"
                )
            self._steer(sample)
        except (DriverUnavailable, DriverRefused) as error:
            self._unseen(error)
            return
        except OSError as full:  # an agent that cannot remember does not go on
            self._drop()
            self._log.error(
                "state_unwritable",
                fix="free space in the agent's folder",
                error=_name_of(full),
            )
            return
        self._unreadable = False
        self._news(sample, report)

    def _unseen(self, error: KeymgmtError) -> None:
        """A data plane that is away comes back; one that speaks another form never does: say so, once."""
        before, self._unreadable = self._unreadable, isinstance(error, DriverUnreadable)
        log = self._log.warning if self._unreadable and not before else self._log.debug
        log("check_failed", why=str(error), fix=error.fix)

    def _steer(self, sample: Sample) -> None:
        """Renew the opening, or close it. Nothing in here waits for a network."""
        with self._opening:
            now = boottime_ns()
            permit, validity = self.keeper.standing.permit, self.keeper.validity(sample.secy_id, now)
            why = keyed(sample) or ("" if self.keeper.clean(now) else "a violation was seen just now")
            if permit is not None and validity.left_ms and not why:
                self.driver.permit(now + min(permit.arm_ms, validity.left_ms) * _MS)
            elif sample.path == "open":
                self._drop()

    def _news(self, sample: Sample, report: Violation | None) -> None:
        """Tell at once what must not wait for the next poll or pull."""
        before, self._latest = self._latest, sample
        if report is not None:
            with self._reporting:
                self._reports.append(report)
            self._log.warning("violation", code=report.code, number=self.keeper.violations, why=report.detail)
        restarted = before is not None and before.secy_id != sample.secy_id
        if restarted:
            self._log.warning("secy_restarted", secy_id=sample.secy_id)
        if before is not None and before.path != sample.path:
            self._log.info("path", path=sample.path)
        if report is not None or restarted:
            self._poll_connection.interrupt()
        if report is not None or before is None or before.tx_key_id != sample.tx_key_id:
            self._pull_now.set()

    def _drop(self) -> None:
        """Close the path now; a data plane that does not answer closes by itself within arm."""
        try:
            self.driver.permit(0)
        except KeymgmtError as error:
            self._log.warning("drop_failed", why=str(error))

    # --- renew

    def _renew_pass(self) -> None:
        try:
            self.vault.keep_alive()
            if self.identity.wants_renewal(dt.datetime.now(dt.UTC)):
                candidate = Candidate(self.config.name)
                self.identity = candidate.adopt(self.config.folder, self.vault.sign_csr(candidate.csr))
                self._log.info("certificate_renewed", until=self.identity.not_after.isoformat())
        except KeymgmtError as error:
            self._log.debug("renew_failed", why=str(error))
        except OSError as full:
            self._log.error("state_unwritable", fix="free space in the agent's folder", error=_name_of(full))
        self._stop.wait(self.config.timers.renew_check_ms / 1000)

    # --- samples

    def _sample(self, reading: Reading) -> Sample:
        return Sample(
            link=self.config.link,
            endpoint=self.config.endpoint,
            agent=self.config.name,
            boot_id=self.boot_id,
            secy_id=reading.secy_id,
            seq=self._numbers.take(),
            mono_ns=boottime_ns(),
            wall_ns=time.time_ns(),
            protect=reading.protect,
            encrypt=reading.encrypt,
            validate=reading.validate,
            encoding_an=reading.encoding_an,
            tx_key_id=reading.key_of_tx(),
            path=reading.path,
            faults=reading.faults,
            violation_generation=self.keeper.violations,
            counters=reading.counters,
        )

    def _signed(self, sample: Sample) -> Sample:
        return sign_sample(sample, self.identity)

    def _connection(self, timeout_ms: int) -> Connection:
        return Connection(self.config.control_plane, lambda: self.identity, timeout_ms / 1000)


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "OSError")


def _operations(answer: bytes, nonce: str) -> list[Operation]:
    """Read a poll's answer. Raises MessageRefused."""
    try:
        doc = json.loads(answer)
        if doc["nonce"] != nonce:
            raise MessageRefused("the answer is for another poll")
        return [Operation.from_json(operation) for operation in doc["operations"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MessageRefused("the control plane's answer is malformed") from None


def run(doc: Mapping[str, Any]) -> None:
    """Run an agent until SIGTERM. The fork server and `sluicegate agent` end here."""
    config = AgentConfig.from_json(doc)
    configure(f"agent.{config.name}", doc.get("log_level", "info"))
    keep_out_of_core_files()
    agent = _when_enrolled(config)
    signal.signal(signal.SIGTERM, agent.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    agent.run()


def _when_enrolled(config: AgentConfig) -> Agent:
    try:
        _lock = StateFolder(config.folder).claim()  # kept open until this process ends
        return Agent(config)
    except CouldNotTell as error:
        get_logger("agent").error("agent_not_started", agent=config.name, why=str(error), fix=error.fix)
        raise SystemExit(1) from None
