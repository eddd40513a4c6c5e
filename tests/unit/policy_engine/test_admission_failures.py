"""When we ourselves fail: refused with the reason, clean-up let pass, nothing that was answered is lost."""

import asyncio
import contextlib
import json
import os
import resource
import secrets
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from admission_world import Answer, Connection, World, client_context, pod, review, running

from evidence.database import Database
from evidence.ledger import Ledger
from evidence.records import decode_frame
from evidence.sequencer import Sequencer
from evidence.spool import Spool
from policy_engine.admission.durable import DurableQueue
from policy_engine.errors import DecisionLate, EngineNoResult, LookupUnavailable
from policy_engine.limits import LIMITS
from policy_engine.rules.engine import Result

HERE = Path(__file__).parent


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """The operating system refuses to make files larger, as a full disk does (also for root)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def deleting(finalizers: list[str], **changes: Any) -> dict[str, Any]:
    obj = pod(**changes)
    obj["metadata"] |= {"deletionTimestamp": "2026-11-30T00:00:00Z", "finalizers": finalizers}
    return obj


def update(new: dict[str, Any], old: dict[str, Any], **request: Any) -> dict[str, Any]:
    return review(new, operation="UPDATE", oldObject=old, **request)


def kept(obj: dict[str, Any]) -> dict[str, Any]:
    """The same object, which nobody has asked to delete."""
    del obj["metadata"]["deletionTimestamp"]
    return obj


FINALIZER_REMOVAL = update(deleting(["b"]), deleting(["a", "b"]))


async def test_an_unwritable_spool_denies_with_the_reason_and_is_summed_up_afterwards(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        client_context("train-us")  # writes a temporary file when first made
        with no_room():
            for _ in range(3):
                answer = await world.ask(review(pod()))
                assert not answer.allowed
                assert answer.response["status"]["code"] == 503
                assert "[engine.spool_unwritable]" in answer.message
                assert "disk" in answer.message
                assert "auditAnnotations" not in answer.response
            assert await world.app.flush_summary() is False
        assert world.records() == []
        assert (await world.ask(review(pod()))).allowed, "it goes on by itself"
        assert await world.app.flush_summary() is True
        assert await world.app.flush_summary() is True
        decision, summary = world.records()
        assert decision.header_fields()["kind"] == "decision"
        assert summary.header_fields()["kind"] == "decision_summary"
        assert summary.header_fields()["scope"] == world.scopes["estate"]
        body = summary.public_fields()
        assert body["counts"] == [{"cluster": "train-us", "count": 3, "reason": "engine.spool_unwritable"}]
        assert int(body["first"]) < int(body["last"])


async def test_a_full_disk_denies_and_every_admitted_one_is_still_there(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(  # noqa: ASYNC221
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=False
    )
    if mount.returncode:
        pytest.skip("no right to mount a small disk; RLIMIT_FSIZE covers the rest")
    try:
        async with running(
            tmp_path, lambda world: setattr(world, "spool", Spool(disk, "webhook-0"))
        ) as world:
            admitted, refused = [], 0
            async with world.connection("train-us") as connection:
                while refused < 3:
                    answer = await connection.post("/admit/train-us", review(pod()))
                    if answer.allowed:
                        admitted.append(answer.response["auditAnnotations"]["decision.705ab4f5"])
                    else:
                        assert "[engine.spool_unwritable]" in answer.message
                        refused += 1
            assert len(admitted) > 10
            recorded = [record.public_fields()["decision_id"] for record in world.records()]
            assert recorded == admitted
    finally:
        subprocess.run(["umount", str(disk)], check=True)  # noqa: ASYNC221


async def test_clean_up_passes_while_the_spool_is_unwritable_and_is_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        client_context("train-us")
        with no_room():
            passing = [
                review(None, operation="DELETE", oldObject=pod()),
                review(
                    {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "x"}},
                    subResource="eviction",
                ),
                FINALIZER_REMOVAL,
            ]
            for body in passing:
                answer = await world.ask(body)
                assert answer.allowed
                assert "without a decision" in answer.response["warnings"][0]
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme-train"}}
            refused = [
                review(None, operation="DELETE", oldObject=namespace),
                update(pod(), pod()),
                update(deleting(["b"], site="cw-us-east"), deleting(["a", "b"])),
                update(deleting(["b", "c"]), deleting(["a", "b"])),
                update(deleting(["c"]), deleting(["a", "b"])),
                update(kept(deleting(["b"])), kept(deleting(["a", "b"]))),
                update(deleting(["b"]), deleting(["a", "b"]), subResource="status"),
                review(pod(), operation="CONNECT", subResource="exec"),
            ]
            for body in refused:
                assert not (await world.ask(body)).allowed
        assert world.app.metrics.failed_open == {"DELETE": 1, "CREATE": 1, "UPDATE": 1}


async def test_the_summary_is_written_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        client_context("train-us")
        with no_room():
            await world.ask(review(pod()))
        async with asyncio.timeout(5):
            while not world.records():
                await asyncio.sleep(0.05)
        assert world.records()[0].header_fields()["kind"] == "decision_summary"


class BrokenEngine:
    """Gives no result. Leaves out nothing else: that is all it does."""

    name = "wasm"

    def __init__(self, policy_digest: str, failure: Exception) -> None:
        self.policy_digest = policy_digest
        self.failure = failure

    def evaluate(self, input_bytes: bytes, digest: str) -> Result:
        raise self.failure


@pytest.mark.parametrize("failure", [EngineNoResult("the policy trapped"), ValueError("a defect")])
async def test_an_engine_without_a_result_denies_and_that_is_recorded(
    tmp_path: Path, failure: Exception
) -> None:
    def break_engine(world: World) -> None:
        world.engine = BrokenEngine(world.bundle.policy_digest, failure)

    async with running(tmp_path, break_engine) as world:
        answer = await world.ask(review(pod()))
        assert not answer.allowed
        assert answer.response["status"]["code"] == 503
        assert "[engine.no_result]" in answer.message
        assert (await world.ask(FINALIZER_REMOVAL)).allowed
        assert (await world.ask(review(None, operation="DELETE", oldObject=pod()))).allowed
        bodies = [record.public_fields() for record in world.records()]
        assert bodies[0]["rules"] == ["engine.no_result"]
        assert (bodies[1]["allowed"], bodies[1]["exempt"]) == (True, "internal_failure")
        assert world.app.metrics.failed_open == {"UPDATE": 1}


async def test_an_engine_of_another_policy_is_no_result(tmp_path: Path) -> None:
    def swap(world: World) -> None:
        world.engine = BrokenEngine("0" * 64, AssertionError("never asked"))

    async with running(tmp_path, swap) as world:
        assert "[engine.no_result]" in (await world.ask(review(pod()))).message


async def test_a_defect_around_the_rules_denies_without_its_text(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        world.now = lambda: 1 // 0
        async with world.connection("train-us") as connection:
            assert (await connection.post("/admit/train-us", review(pod()))).status == 500

    class Lookup:
        def __getattr__(self, name: str) -> Any:
            raise LookupUnavailable("inventory secret-place is away")

    async with running(tmp_path, lookup=Lookup()) as world:
        named = pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
        answer = await world.ask(review(named))
        assert not answer.allowed
        assert "secret-place" not in answer.message
        assert (await world.ask(review(pod()))).allowed


def slow_commits(world: World, seconds: float) -> None:
    """Makes each group commit take as long as on a disk that hangs."""
    commit = world.spool._commit

    def slow(bodies: list[bytes]) -> None:
        time.sleep(seconds)
        commit(bodies)

    world.spool._commit = slow  # type: ignore[method-assign]


async def test_too_many_reviews_at_once_are_refused_as_overload_and_summed_up(tmp_path: Path) -> None:
    limits = replace(LIMITS, reviews_in_flight=2)
    async with running(tmp_path, lambda world: slow_commits(world, 0.3), limits=limits) as world:
        answers: list[Answer] = await asyncio.gather(
            *(world.ask(review(pod(), uid=f"u{n}")) for n in range(4))
        )
        overloaded = [answer for answer in answers if answer.status == 200 and not answer.allowed]
        beyond = [answer for answer in answers if answer.status == 429]
        assert sum(answer.status == 200 and answer.allowed for answer in answers) == 2
        assert len(overloaded) + len(beyond) == 2
        for answer in overloaded:
            assert "[engine.overload]" in answer.message
            assert answer.response["status"]["code"] == 429
        assert await world.app.flush_summary() is True
        summary = world.records()[-1].public_fields()
        assert [(c["reason"], c["count"]) for c in summary["counts"]] == [
            ("engine.overload", len(overloaded))
        ]
        assert world.app.metrics.in_flight == 0


async def test_one_cluster_cannot_take_the_room_of_another(tmp_path: Path) -> None:
    limits = replace(LIMITS, reviews_in_flight_per_cluster=1)
    async with running(tmp_path, lambda world: slow_commits(world, 0.3), limits=limits) as world:
        us = [asyncio.create_task(world.ask(review(pod()))) for _ in range(2)]
        await asyncio.sleep(0.1)
        eu = await world.ask(
            review(pod(annotations={"sluicegate.io/datasets": "none"}), namespace="acme-eu"),
            cluster="train-eu",
        )
        assert eu.allowed
        assert sorted([answer.allowed for answer in await asyncio.gather(*us)]) == [False, True]


async def test_a_late_record_is_answered_as_no_result_and_named_in_the_summary(tmp_path: Path) -> None:
    limits = replace(LIMITS, decision_deadline_ms=100)
    async with running(tmp_path, lambda world: slow_commits(world, 0.5), limits=limits) as world:
        answer = await asyncio.wait_for(world.ask(review(pod())), 0.45)
        assert not answer.allowed
        assert "[engine.no_result]" in answer.message
        await asyncio.sleep(0.6)
        (decision,) = world.records()
        assert await world.app.flush_summary() is True
        late = world.records()[-1].public_fields()["late"]
        assert late == [decision.public_fields()["decision_id"]]


async def test_a_record_is_late_by_its_own_deadline_whatever_waits_before_it() -> None:
    class Hanging:
        """A spool whose disk never answers."""

        def submit(self, _seq: int, _frame: bytes) -> asyncio.Future[None]:
            return asyncio.get_running_loop().create_future()

    queue = DurableQueue(Hanging())  # type: ignore[arg-type]
    patient, ended, hasty = (queue.append(seq, b"", left_s) for seq, left_s in enumerate((60.0, 0.0, 0.0)))
    ended.set_result(None)
    with pytest.raises(DecisionLate):
        await asyncio.wait_for(hasty, 5)
    assert not patient.done()
    patient.set_result(None)


async def test_the_api_servers_own_timeout_shortens_the_deadline(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        assert world.app._allowed_s(b"timeout=2s") == 1.5
        assert world.app._allowed_s(b"timeout=30s") == 3.0
        assert world.app._allowed_s(b"timeout=1s") == 0.5
        for query in (b"", b"timeout=", b"timeout=-1s", b"timeout=1h", b"x=1&y"):
            assert world.app._allowed_s(query) == 3.0


async def test_stopping_answers_every_review_that_was_sent(tmp_path: Path) -> None:
    async with running(tmp_path, lambda world: slow_commits(world, 0.2)) as world:
        asked = [asyncio.create_task(world.ask(review(pod(), uid=f"u{n}"))) for n in range(6)]
        await asyncio.sleep(0.1)
        await world.listeners.stop()
        assert [answer.allowed for answer in await asyncio.gather(*asked)] == [True] * 6


# -- kill -9 --------------------------------------------------------------------------------------------------


def start_child(folder: Path) -> tuple[subprocess.Popen[str], int]:
    child = subprocess.Popen(
        [sys.executable, str(HERE / "admission_child.py"), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[2]}"},
    )
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line.strip().isdigit(), "the child did not start"
    return child, int(line)


async def burst(folder: Path, port: int, answered: list[str], number: int) -> None:
    """Asks until the connection breaks; notes every decision id that was answered."""
    context = ssl.create_default_context(cafile=str(folder / "server-ca.pem"))
    token = (folder / "token").read_text()
    with contextlib.suppress(OSError, IndexError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        connection = Connection(reader, writer)
        for turn in range(100_000):
            body = json.dumps(review(pod(), uid=f"{number:04d}{turn:04d}")).encode()
            answer = await connection.post(f"/admit/train-us/{token}", body)
            assert answer.allowed
            answered.append(answer.response["auditAnnotations"][f"decision.{number:04d}{turn:04d}"])


@pytest.mark.slow
async def test_kill_9_in_a_burst_loses_and_repeats_nothing_that_was_answered(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(secrets.token_hex(32))
    answered: list[str] = []
    for round_ in range(2):
        child, port = start_child(tmp_path)
        clients = [asyncio.create_task(burst(tmp_path, port, answered, 100 * round_ + n)) for n in range(8)]
        await asyncio.sleep(1.0 + 0.37 * round_)
        child.kill()
        child.wait()
        await asyncio.wait_for(asyncio.gather(*clients), 20)
    assert len(answered) > 100
    database = Database(tmp_path / "ledger.db")
    database.start()
    spool = Spool(tmp_path / "spool", "webhook-0")
    spool.start()
    try:
        Sequencer(database, Ledger.open(database), [spool]).drain_sync()
        frames = database.read_sync(
            lambda conn: [bytes(row[0]) for row in conn.exec_driver_sql("SELECT frame FROM ledger_record")]
        )
    finally:
        spool.stop()
        database.stop()
    records = [decode_frame(frame) for frame in frames]
    ids = [record.public_fields()["decision_id"] for record in records]
    assert len(ids) == len(set(ids)), "nothing twice"
    assert set(answered) <= set(ids), "nothing answered is missing"
    seqs = sorted(int(record.header_fields()["source_seq"]) for record in records)
    assert seqs == list(range(len(seqs))), "the sequence has no gap"
