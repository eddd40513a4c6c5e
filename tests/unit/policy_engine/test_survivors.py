"""Which processes of a killed `up` the next one goes on with."""

import subprocess
import sys
from functools import partial

import pytest

from keymgmt import processes as code
from keymgmt.processes import survivor
from policy_engine.embedded import processes
from policy_engine.embedded.processes import Processes, Wanted

PROCESS = """
import sys, time
from pathlib import Path
from keymgmt.processes import Spawned, hold
held = hold(Path(sys.argv[1]), Spawned.of_self(sys.argv[2], sys.argv[3]))
print(flush=True)
time.sleep(60)
"""


class Server:
    """Starts processes that hold their record and do nothing else."""

    pid = 0

    def __init__(self):
        self.children = []

    def spawn(self, role, name, _config, *, record, log):
        command = [sys.executable, "-c", PROCESS, str(record), role, name]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.children.append(child)
        child.stdout.readline()
        return survivor(record)


@pytest.fixture
def up(tmp_path):
    """Makes an `up` on one folder; those of before are as good as killed."""
    server = Server()

    def make(**config):
        made = Processes(tmp_path, tmp_path, tmp_path)
        made._server = server
        made.want([Wanted("dataplane", "l1-a", {"name": "l1-a"} | config)])
        return made

    yield make
    for child in server.children:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_survivor_is_adopted_when_it_is_what_would_be_started(up):
    first = up()
    again = up()
    assert (["dataplane/l1-a"], first.pids) == (again.adopted, again.pids)


@pytest.mark.parametrize("other", ["configuration", "program", "an unknown program"])
def test_a_survivor_of_another_program_or_configuration_is_ended_and_started_anew(
    up, other, tmp_path, monkeypatch
):
    first, again = up(), up
    if other == "configuration":
        again = partial(up, cipher="another")
    elif other == "program":
        monkeypatch.setattr(processes, "program", lambda: "another")
    else:  # as an `up` that did not compare programs left it
        (tmp_path / "processes" / "dataplane-l1-a.config").write_text('{"name": "l1-a"}')
    second = again()
    assert ([], False) == (second.adopted, first.pids == second.pids)
    assert not first._running["dataplane/l1-a"].alive()
    assert ["dataplane/l1-a"] == again().adopted


def test_a_program_is_its_source_text(tmp_path, monkeypatch):
    for name in ("evidence", "keymgmt"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("a")
    monkeypatch.setattr(code, "__file__", str(tmp_path / "keymgmt" / "processes.py"))
    found = [code.program.__wrapped__()]
    for file, text in (("evidence/x.py", "b"), ("keymgmt/x.py", "b"), ("keymgmt/y.py", "")):
        (tmp_path / file).write_text(text)
        found.append(code.program.__wrapped__())
    (tmp_path / "keymgmt" / "notes.txt").write_text("no code")
    found.append(code.program.__wrapped__())
    assert [False, False, False, True] == [one == next_ for one, next_ in zip(found, found[1:], strict=False)]
