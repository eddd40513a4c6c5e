"""kill -9 of conductor, agent, data plane and key store at each step of a rotation, six links at a time.

Every rotation must end lawfully, every link must open again by itself, and no clear frame may ever show
on the wire. A step is hit exactly: the victim dies when the log says that the journal entered it.
"""

import contextlib
import json
import os
import shutil
import signal
import threading
import time

import pytest
from running_system import Running, wait

from policy_engine.demo.client import DoorClosedError
from policy_engine.embedded.begin import example_estate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LAWFUL = {"complete", "rolled back", "rekeyed", "not started"}
LINKS = ("cw-gcp-1", "cw-aws-1", "gcp-aws-1", "extra-1", "extra-2", "extra-3")
STEPS = (
    *("survey", "prepare", "mint", "wrap", "install", "destroy", "baseline"),
    *("select a", "probe a", "verify b", "select b", "probe b", "verify a"),
    *("confirm", "overlap", "drain", "retire tx", "retire rx", "proof"),
)
# (step, victim): agents and data planes at every step, the end alternating.
DEATHS = [
    (step, f"{victim}-{'ab'[(index + shift) % 2]}")
    for shift, victim in enumerate(("agent", "dataplane"))
    for index, step in enumerate(STEPS)
]
ROUNDS = [DEATHS[at : at + len(LINKS)] for at in range(0, len(DEATHS), len(LINKS))]
LINK = """\
  - apiVersion: sluicegate.io/v1alpha1
    kind: Link
    metadata: {{name: extra-{n}}}
    spec:
      profile: fabric-100g
      encryption: required
      endpoints:
        - {{site: cw-us-east, agent: extra-{n}-a, driver: software, sci: "02c0de000a{n:02d}0001"}}
        - {{site: gcp-us-central, agent: extra-{n}-b, driver: software, sci: "02c0de000b{n:02d}0001"}}
"""
EXTRA = "apiVersion: v1\nkind: List\nitems:\n" + "".join(LINK.format(n=n) for n in (1, 2, 3))


class Follower:
    """Reads the control plane's log as it grows and acts when a link enters a step."""

    def __init__(self, path):
        self.path = path
        self.at = {}  # link -> step it is in
        self.plan = {}  # (link, step) -> what to do
        self.done = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        with self.path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            rest = b""
            while not self._stop.is_set():
                rest += log.read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    self._line(line)
                time.sleep(0.002)

    def _line(self, line):
        if b'"rotation_step"' not in line:
            return
        doc = json.loads(line)
        self.at[doc["link"]] = doc["step"] if doc["end"] is None else "-"
        act = self.plan.pop((doc["link"], doc["step"]), None)
        if act is not None and doc["end"] is None:
            act()
            self.done.append((doc["link"], doc["step"]))


class Six(Running):
    """Six links, slower traffic, quick restarts."""

    def __init__(self, root):
        estate = root / "estate"
        shutil.copytree(example_estate(), estate)
        (estate / "extra.yaml").write_text(EXTRA)
        super().__init__(
            root,
            SLUICEGATE_ESTATE_DIR=str(estate),
            SLUICEGATE_TRAFFIC_FPS="50",
            SLUICEGATE_AGENT_RESTART_SECONDS="2.5",
        )
        self.ends = []
        self.follower = None

    def rotate_all(self, pause=0.0):
        asked = {}
        for link in LINKS:
            reply = self.api(f"/v1/links/{link}/rotate", {})
            assert 202 == reply.status, reply
            asked[link] = reply.body["rotation"]
            time.sleep(pause)
        return asked

    def settled(self, asked):
        """Each rotation that was asked for has ended, nothing is open, every link is open again."""
        for link, rotation in asked.items():
            told = self.link(link)
            found = [state for state in told["recent"] if state["rotation"] == rotation]
            if told["rotation"] is not None or not found or found[0]["end"] is None:
                return False
            posture = told["posture"]
            if (posture["posture"], posture["state"]) != ("encrypted", "open"):
                return False
        return True

    def judge(self, asked):
        try:
            wait(lambda: self.settled(asked), 60, "links settle")
        except AssertionError:
            raise AssertionError(f"links did not settle: {[self.link(link) for link in LINKS]}") from None
        for link, rotation in asked.items():
            end = next(s["end"] for s in self.link(link)["recent"] if s["rotation"] == rotation)
            assert end in LAWFUL
            self.ends.append((link, end))
        assert 0 == self.look()

    def look(self):
        """Clear frames and canaries at the relay now; remembered over its restarts."""
        links = self.relay()
        return sum(seen["clear"] + seen["canary_seen"] for ways in links.values() for seen in ways.values())


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    stage = Six(tmp_path_factory.mktemp("six"))
    try:
        stage.start()
        wait(lambda: stage.settled({}) and all(_open(stage, link) for link in LINKS), 90, "six links open")
        stage.follower = Follower(stage.state / "logs" / "up.log")
        yield stage
    finally:
        if stage.follower is not None:
            stage.follower.stop()
        left = stage.stop()
    assert set() == left


def _open(stage, link):
    posture = stage.link(link).get("posture", {})
    return (posture.get("posture"), posture.get("state")) == ("encrypted", "open")


def _kill(pid):
    def act():
        os.kill(pid, signal.SIGKILL)

    return act


@pytest.mark.parametrize("deaths", ROUNDS, ids=[f"{r[0][0]}..{r[-1][0]}".replace(" ", "-") for r in ROUNDS])
def test_agents_and_data_planes_die_at_each_step(six, deaths):
    pids = six.processes()
    six.follower.done.clear()
    six.follower.plan = {
        (link, step): _kill(pids[f"{victim[:-2]}/{link}{victim[-2:]}"])
        for link, (step, victim) in zip(LINKS, deaths, strict=False)
    }
    six.judge(six.rotate_all())
    assert sorted(zip(LINKS, (step for step, _ in deaths), strict=False)) == sorted(six.follower.done)


@pytest.mark.parametrize("step", ["mint", "wrap", "install", "destroy"])
def test_the_key_store_dies(six, step):
    six.follower.done.clear()
    six.follower.plan = {("cw-gcp-1", step): _kill(six.processes()["openbao"])}
    six.judge(six.rotate_all(0.05))
    assert [("cw-gcp-1", step)] == six.follower.done


@pytest.mark.parametrize("step", ["install", "select b", "drain"])
def test_the_conductor_dies_while_six_links_are_at_different_steps(six, step):
    six.follower.done.clear()
    six.follower.plan = {("cw-gcp-1", step): _kill(six.pid)}
    asked = {}
    with contextlib.suppress(DoorClosedError):
        for link in LINKS[::-1]:
            asked[link] = six.api(f"/v1/links/{link}/rotate", {}).body["rotation"]
            time.sleep(0.3)
    wait(lambda: six.follower.done, 15, "the step is reached")
    assert [("cw-gcp-1", step)] == six.follower.done
    six.kill()
    six.start()
    six.judge(asked)


def test_the_data_planes_never_counted_a_clear_frame_either(six):
    """A second witness beside the relay, which starts anew with each control plane."""
    for agent in six.endpoints["data_planes"]:
        counters = six.plane(agent)["counters"]
        names = ("guard.InClear", "guard.OutDropped", "secy.InPktsNoTag", "secy.InPktsUntagged")
        assert {} == {name: counters[name] for name in names if int(counters.get(name, 0))}
