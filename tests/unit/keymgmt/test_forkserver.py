"""Records of processes: a survivor is known by lock, pid, start time and boot together."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from keymgmt import processes
from keymgmt.errors import CouldNotTell
from keymgmt.forkserver import ForkServer
from keymgmt.processes import AlreadyRunning, Spawned, end, hold, start_time, survivor


def test_a_record_names_a_survivor_only_while_its_lock_is_held(tmp_path: Path) -> None:
    record, me = tmp_path / "r.json", Spawned.of_self("agent", "x")
    descriptor = hold(record, me)
    assert me == survivor(record)
    with pytest.raises(AlreadyRunning):
        hold(record, me)
    os.close(descriptor)
    assert survivor(record) is None
    assert survivor(tmp_path / "none.json") is None


@pytest.mark.parametrize("change", [{"start_time": 1}, {"boot_id": "other"}, {"pid": 2**22 + 1}])
def test_a_record_of_another_process_is_no_survivor(tmp_path: Path, change: dict[str, object]) -> None:
    record, me = tmp_path / "r.json", Spawned.of_self("agent", "x")
    record.write_text(json.dumps(asdict(replace(me, **change))))  # type: ignore[arg-type]
    with record.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert survivor(record) is None


def test_the_lock_of_a_holder_that_is_dying_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, me = tmp_path / "r.json", Spawned.of_self("agent", "x")
    gone = replace(me, pid=2**22 + 1)
    record.write_text(json.dumps(asdict(gone)))
    with record.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(0.2, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        began = time.monotonic()
        os.close(hold(record, me))
        assert 0.15 < time.monotonic() - began < 4
        record.write_text(json.dumps(asdict(gone)))
        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(processes, "_LETTING_GO_S", 0.1)
        with pytest.raises(AlreadyRunning):  # whoever it is, it does not let go
            hold(record, me)


def test_a_torn_record_is_no_survivor(tmp_path: Path) -> None:
    record = tmp_path / "r.json"
    record.write_text('{"role": "agent"')
    with record.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert survivor(record) is None


def test_only_the_very_process_is_ended() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.read(1)
    known = replace(Spawned.of_self("agent", "x"), pid=child.pid, start_time=start_time(child.pid) or 0)
    end(replace(known, start_time=known.start_time - 1))
    assert child.poll() is None
    end(known)
    assert child.wait(5) < 0
    child.stdout.close()
    end(known)


def test_a_fork_server_that_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(CouldNotTell) as failed:
        ForkServer.start(tmp_path / "no" / "such" / "folder.sock", tmp_path / "log")
    assert str(tmp_path / "log") in failed.value.fix


def test_no_message_and_no_lost_client_ends_the_fork_server(tmp_path: Path) -> None:
    path = tmp_path / "f.sock"
    server = ForkServer.start(path, tmp_path / "log")
    try:
        for message in (
            b"[" * 60_000,
            b"{}",
            b"[]",
            b"\xff",
            b'{"cmd":"spawn","role":"agent"}',
            b'{"cmd":[]}',
        ):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(path))
                client.settimeout(5)
                client.send(message)
                assert "error" in json.loads(client.recv(65_536))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            client.send(b'{"cmd":"exits"}')  # and gone before the answer
        assert {} == server.exits()
    finally:
        server.stop()


def test_a_child_that_fails_says_where_and_never_what(tmp_path: Path) -> None:
    server = ForkServer.start(tmp_path / "f.sock", tmp_path / "log")
    try:
        secret = "5ec2e7" * 5
        log = tmp_path / "child.log"
        server.spawn("dataplane", "x", {"name": secret, "sci": secret}, record=tmp_path / "r", log=log)
        for _ in range(100):
            if server.exits():
                break
            time.sleep(0.05)
        text = log.read_text()
        assert "dataplane x ended: KeyError at software_dataplane.py:" in text
        assert secret not in text
    finally:
        server.stop()
