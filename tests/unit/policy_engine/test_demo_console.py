"""How the demo speaks: a statement that does not hold is remembered, nothing is cut, folders are respected."""

import io
import os

import pytest
from rich.console import Console

from policy_engine.demo import story as whole
from policy_engine.demo.client import DoorClosedError
from policy_engine.demo.console import StepFailedError, Story
from policy_engine.demo.memory import PeakMemory, parents, pss_kib, tree
from policy_engine.demo.story import _make


@pytest.fixture
def told():
    out = io.StringIO()
    return Story(Console(file=out)), out


def test_what_does_not_hold_is_printed_and_remembered(told):
    story, out = told
    assert story.check(True, "the first holds")
    assert not story.check(False, "the second holds", detail="it did not")
    assert (["the second holds"], 1) == (story.failed, story.held)
    assert "✗ the second holds\n       found: it did not" in out.getvalue()


def test_a_fatal_statement_ends_the_story(told):
    story, _ = told
    with pytest.raises(StepFailedError):
        story.check(False, "x", fatal=True)
    assert ["x"] == story.failed


def test_a_wait_that_takes_too_long_fails(told):
    story, _ = told
    with pytest.raises(StepFailedError):
        story.wait("never", lambda: (0, 1), timeout=0.05, every=0.01)
    assert story.wait("at once", lambda: (1, 1), timeout=1) < 0.5


def test_plain_output_has_no_control_characters_and_cuts_nothing(told):
    story, out = told
    story.chapter(1, "Name", "text " * 40)
    story.table(["a", "b"], [["x" * 150, "1"]], words=1)
    story.quote("word " * 60)
    story.wait("bar", lambda: (1, 1), timeout=1)
    text = out.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    assert "x" * 150 in text
    assert 40 == text.count("text")
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(SystemExit, match="choose another --out"):
        _make(tmp_path)
    assert "keep" == (tmp_path / "mine").read_text()
    _make(tmp_path / "new")
    (tmp_path / "new" / "old-result").touch()
    _make(tmp_path / "new")
    assert [".sluicegate-demo"] == [path.name for path in (tmp_path / "new").iterdir()]


def test_memory_is_counted_over_the_tree():
    import os

    assert os.getpid() in tree({os.getppid()})
    assert parents()[os.getpid()] == os.getppid()
    assert pss_kib(os.getpid()) > 1000
    assert 0 == pss_kib(2**22 - 1)


def no(error):
    raise error


@pytest.mark.parametrize(
    ("chapter", "code"),
    [
        (lambda *_: None, 0),
        (lambda story, *_: story.check(False, "a statement"), 1),
        (lambda *_: no(DoorClosedError("no answer")), 1),
        (lambda *_: no(StepFailedError("not in time")), 1),
        (lambda *_: no(KeyboardInterrupt()), 130),
    ],
    ids=["all held", "one did not hold", "no answer", "not in time", "interrupted"],
)
def test_the_demo_ends_with_zero_only_when_every_statement_held(tmp_path, monkeypatch, capsys, chapter, code):
    class Stage:
        """A system that starts nothing and leaves nothing behind."""

        def __init__(self, state, _log):
            self.state, self.memory = state, PeakMemory({os.getpid()})

        def stop(self):
            return set()

    monkeypatch.setattr(whole, "Stage", Stage)
    monkeypatch.setattr(whole.signal, "signal", lambda *_: None)
    for name in ("start", "decide", "rotate", "witness"):
        monkeypatch.setattr(whole, name, lambda *_: None)

    def gate(story, stage):
        stage.memory.peak_mib = 5
        chapter(story, stage)

    monkeypatch.setattr(whole, "gate", gate)
    assert code == whole.run(tmp_path / "out")
    told = capsys.readouterr().out
    assert ("statements held." in told, "NOT hold" in told) == (code == 0, code == 1)


def test_memory_that_was_never_sampled_is_no_proof():
    memory = PeakMemory({os.getpid()})
    memory.stop()
    assert 0 == memory.peak_mib
    memory = PeakMemory({os.getpid()}, every=60)
    memory.start()
    memory.stop()
    assert (True, 1) == (memory.peak_mib > 0, memory.samples)
