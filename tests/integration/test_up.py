"""`sluicegate up` as a user runs it: refused twice, adopted after kill -9, nothing lost, nothing left."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from running_system import Running, wait

from policy_engine.demo.chapters_start import review
from policy_engine.demo.client import DoorClosedError
from policy_engine.demo.memory import tree
from policy_engine.demo.stage import LINKS, WAYS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CANARY = "canary-7f3a-value-of-an-env-variable"


class Up(Running):
    """`sluicegate up` itself, with its own defaults."""

    def command(self):
        return [
            sys.executable,
            "-m",
            "policy_engine.cli",
            "up",
            "--state",
            str(self.state),
            "--ports",
            "auto",
        ]

    def start(self):
        self.run(*self.command(), start_new_session=True)


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    stage = Up(tmp_path_factory.mktemp("up"))
    try:
        stage.start()
        stage.all_open()
        yield stage
    finally:
        stage.stop()


def burst(stage, answered, stop):
    """Ask until told to stop; keep the decision ids of every answer that arrived."""
    document = review(stage, "compliant")
    container = document["request"]["object"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "API_KEY", "value": CANARY}]
    while not stop.is_set():
        try:
            response = stage.review("train-us", document)
        except (DoorClosedError, KeyError, OSError, TypeError):  # also an answer that was cut off
            return
        answered.append(next(v for k, v in response["auditAnnotations"].items() if k.startswith("decision.")))


def decisions(stage):
    """Decision id -> how often it stands in any scope of the ledger."""
    found = Counter()
    for scope in stage.api("/v1/scopes").body["scopes"]:
        after = -1
        while after is not None:
            page = stage.api(f"/v1/records?kind=decision&scope={scope['name']}&limit=1000&after={after}").body
            found.update(record["public"]["decision_id"] for record in page["records"])
            after = page["next"] if page["records"] else None
    return found


def test_up_never_allows_faults(up):
    for agent in up.endpoints["data_planes"]:
        assert [] == up.plane(agent)["faults"]
        with pytest.raises(DoorClosedError, match="faults are not allowed"):
            up.fault(agent, "encrypt_off")
    assert "off" == up.api("/v1/status").body["faults"]
    done = subprocess.run(
        [sys.executable, "-m", "policy_engine.cli", "up", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not re.search(r"\bfaults?\b", done.stdout.lower())
    from policy_engine.settings import Settings

    assert not [name for name in Settings.model_fields if "fault" in name]


def test_a_second_up_on_the_same_folder_is_refused_with_the_pid_of_the_first(up):
    done = subprocess.run(
        up.command(), capture_output=True, text=True, timeout=60, env=up.environ, check=False
    )
    assert 1 == done.returncode
    assert f"pid {up.pid}" in done.stderr
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr


def test_status_names_what_runs(up):
    done = subprocess.run(
        [sys.executable, "-m", "policy_engine.cli", "status", "--state", str(up.state), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = json.loads(done.stdout)
    assert (0, up.pid, up.endpoints["api"]) == (done.returncode, told["pid"], told["api"])
    assert ("appends", "active", []) == tuple(
        told["says"]["status"][k] for k in ("ledger", "key_store", "warnings")
    )
    words = status(up).stdout
    assert re.search(r"ready +yes\n", words)
    assert re.search(r"links +3 open, 1 not keyed\n", words)


def status(stage):
    return subprocess.run(
        [sys.executable, "-m", "policy_engine.cli", "status", "--state", str(stage.state)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_status_of_a_stopped_up_is_an_error(up):
    up.signal(signal.SIGSTOP)
    try:
        done = status(up)
    finally:
        up.signal(signal.SIGCONT)
    assert 1 == done.returncode
    assert f"error: pid {up.pid} is there, but its API did not answer within 3 s" in done.stderr
    up.all_open()


def test_a_key_store_that_hangs_is_told_and_keeps_nobody_from_deciding(up):
    pid = up.processes()["openbao"]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait(lambda: "unsigned" in up.api("/v1/status").body["ledger"], 20, "the ledger says so")
        told = up.api("/v1/status").body
        assert told["key_store"].startswith("away: no answer for ")
        assert 2 == len(told["warnings"])
        assert "the key store, which is away: " in up.link(LINKS[0])["waiting"][-1]
        assert 200 == up.api("/readyz").status
        assert up.review("train-us", review(up, "compliant"))["allowed"]
        assert "the key store is away" in status(up).stdout
    finally:
        os.kill(pid, signal.SIGCONT)
    wait(lambda: up.api("/v1/status").body["warnings"] == [], 30, "all is well again")


def test_after_kill_9_the_next_up_adopts_survivors_and_loses_nothing_answered(up):
    answered, stop = [], threading.Event()
    thread = threading.Thread(target=burst, args=(up, answered, stop))
    before = {name: pid for name, pid in up.processes().items() if name.startswith(("agent/", "dataplane/"))}
    keys = {agent: up.tx_key(agent) for agent in up.endpoints["data_planes"]}
    bao = up.processes()["openbao"]
    thread.start()
    time.sleep(1.5)
    up.kill()
    stop.set()
    thread.join()
    assert len(answered) > 20
    wait(lambda: not Path(f"/proc/{bao}").exists(), 5, "OpenBao ends with its parent")
    assert all(Path(f"/proc/{pid}").exists() for pid in before.values())
    left = status(up)
    assert 1 == left.returncode
    assert [] == [pid for pid in before.values() if f"pid {pid}" not in left.stdout]
    assert f"adopt them: sluicegate up --state {up.state}" in left.stdout

    up.start()
    up.all_open()
    after = up.processes()
    assert before == {name: after[name] for name in before}
    assert keys == {agent: up.tx_key(agent) for agent in up.endpoints["data_planes"]}
    found = decisions(up)
    assert [] == [one for one in answered if found[one] != 1]
    assert 0 == sum(up.relay()[link][way]["clear"] for link in LINKS for way in WAYS)


def test_a_dead_data_plane_is_restarted_and_its_link_rekeyed(up):
    agent = "cw-aws-1-b"
    old = up.plane(agent)["secy_id"]
    os.kill(up.processes()[f"dataplane/{agent}"], signal.SIGKILL)
    wait(lambda: up.plane(agent)["secy_id"] != old, 20, "a new SecY")
    wait(lambda: up.tx_key(agent), 30, "the new SecY has a key")
    up.all_open()
    assert 0 == sum(up.relay()["cw-aws-1"][way]["clear"] for way in WAYS)


# What may hold a secret, because it is where that secret lives (mode 0600).
KEPT = re.compile(
    r"^(tokens/|openbao/(unseal|roles)\.json|openbao/data/|tls/.*\.key$|agents/[^/]+/identity[^/]*/key\.pem)"
)
SHAPES = {
    "an OpenBao token": re.compile(rb"\bhv[sbr]\.[A-Za-z0-9_-]{20,}"),
    "a wrapped key": re.compile(rb"vault:v\d+:[A-Za-z0-9+/]{16,}"),
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY"),
}


def secrets_of(state):
    """Every secret of this state folder by name, read where it may stand."""
    found = {"env value": CANARY}
    for file in (state / "tokens").iterdir():
        found[file.name] = file.read_text().strip()
    found["unseal key"] = json.loads((state / "openbao" / "unseal.json").read_text())["unseal_key"]
    for role, entry in json.loads((state / "openbao" / "roles.json").read_text())["roles"].items():
        found[f"secret_id of {role}"] = entry["secret_id"]
    return {name: value.encode() for name, value in found.items()}


def test_no_secret_in_any_argv_or_environment(up):
    canaries = secrets_of(up.state)
    assert all(len(value) > 20 for value in canaries.values())
    family = tree([up.pid]) | set(up.processes().values())
    assert len(family) > 15
    seen = [
        (kind, pid, what)
        for pid in family
        for kind in ("cmdline", "environ")
        for what, value in canaries.items()
        if value in Path(f"/proc/{pid}/{kind}").read_bytes()
    ]
    assert [] == seen


def test_a_closed_terminal_is_a_clean_stop(up):
    """The kernel sends SIGHUP to the whole foreground group, the fork server too."""
    family = up.family() | set(up.processes().values())
    for door in up._doors.values():
        door.close()
    up._doors.clear()
    os.killpg(up.pid, signal.SIGHUP)
    assert 0 == up._process.wait(20)
    wait(lambda: not [p for p in family if Path(f"/proc/{p}").exists()], 3, "no orphan")
    assert "start it with" in status(up).stdout
    up.start()
    up.all_open()


def test_a_clean_stop_leaves_no_process_and_says_so(up):
    began = time.monotonic()
    assert set() == up.stop()
    assert time.monotonic() - began < 15
    assert 0 == up._process.returncode
    assert not up.state.joinpath("run", "endpoints.json").exists()
    assert "Traceback" not in (up.state / "logs" / "up.log").read_text()


def test_no_secret_in_any_log_database_journal_spool_or_record(up):
    """After all of the above, and after the stop: every file that must hold none is scanned."""
    canaries = secrets_of(up.state)
    seen, scanned, kept = [], 0, {}
    for path in sorted(up.state.rglob("*")):
        name = str(path.relative_to(up.state))
        if not path.is_file():
            continue
        if KEPT.match(name):
            kept[name] = path.stat().st_mode & 0o077
            continue
        scanned += 1
        data = path.read_bytes()
        seen += [(name, what) for what, value in canaries.items() if value in data]
        seen += [(name, what) for what, shape in SHAPES.items() if shape.search(data)]
    assert [] == seen
    assert scanned > 30
    assert {} == {name: mode for name, mode in kept.items() if mode and not name.startswith("openbao/data/")}
