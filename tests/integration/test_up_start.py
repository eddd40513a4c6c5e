"""The start of `sluicegate up`: interrupted at any moment, in a folder that was moved, with damaged files."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policy_engine.demo.memory import tree

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Terminal:
    """`up` in a process group of its own, as a terminal has it."""

    def __init__(self, state: Path) -> None:
        self.process = subprocess.Popen(
            [*(sys.executable, "-m", "policy_engine", "up", "--state", str(state)), "--ports", "auto"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said = ""

    def until(self, text: str) -> None:
        assert self.process.stdout is not None
        while text not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line

    def until_locked(self, lock: Path) -> None:
        deadline = time.monotonic() + 20
        while not lock.exists() or lock.read_text() != f"{self.process.pid}\n":
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C: the whole group gets it. Exit code, everything said."""
        family = tree({self.process.pid})
        os.killpg(self.process.pid, signal.SIGINT)
        more, _ = self.process.communicate(timeout=60)
        time.sleep(0.2)
        left = [pid for pid in family if Path(f"/proc/{pid}").exists()]
        assert not left
        return self.process.returncode, self.said + more


def test_an_interrupted_start_stops_cleanly_at_any_moment_and_the_next_one_starts(tmp_path):
    state = tmp_path / "s"
    for seconds in (0.0, 0.6, 1.5, 2.5, 4.4):  # after the folder is its own; before, see test_stop.py
        up = Terminal(state)
        up.until_locked(state / "run" / "up.lock")
        time.sleep(seconds)
        code, said = up.interrupt()
        assert (code, "stopping" in said) in ({(0, True), (130, False)} if seconds == 0 else {(0, True)}), (
            said
        )
        assert "error:" not in said
        assert "Traceback" not in said
    up = Terminal(state)
    up.until("3 links keyed, proved encrypted and open")
    assert 0 == up.interrupt()[0]


def test_a_state_folder_may_stand_anywhere_and_shows_others_nothing(tmp_path):
    state, moved = tmp_path / "s", tmp_path / "elsewhere" / "t"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    (state / "spool").mkdir(mode=0o755)
    up = Terminal(state)
    up.until("Ctrl-C stops everything")
    wide = {p.name for p in state.iterdir() if stat.S_IMODE(p.stat().st_mode) & 0o077} - {"trust.json"}
    assert set() == wide
    assert 0 == up.interrupt()[0]
    moved.parent.mkdir()
    state.rename(moved)
    up = Terminal(moved)
    up.until("3 links keyed, proved encrypted and open")
    assert 0 == up.interrupt()[0]


@pytest.mark.parametrize(
    ("file", "fix"),
    [
        ("sluicegate.db", "restore it from a backup, or start anew with another state folder"),
        ("run/ports.json", "remove it: ports are chosen anew then"),
        ("openbao/ports.json", "remove it: new ports are taken then"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, file, fix):
    state = tmp_path / "s"
    (state / file).parent.mkdir(parents=True)
    (state / file).write_text("no such thing" * 100)
    done = Terminal(state)
    said, _ = done.process.communicate(timeout=60)
    assert (1, True, True) == (
        done.process.returncode,
        f"error: {state / file} cannot be read" in said,
        fix in said,
    )
    assert "Traceback" not in said
