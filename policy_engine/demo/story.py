"""The demo from the first line to the last: six chapters, every statement checked, figures at the end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from policy_engine.demo.chapters_gate import gate
from policy_engine.demo.chapters_rotate import rotate
from policy_engine.demo.chapters_start import decide, start
from policy_engine.demo.chapters_witness import TENANT, witness
from policy_engine.demo.client import DoorClosedError
from policy_engine.demo.console import StepFailedError, Story
from policy_engine.demo.stage import Stage

PSS_LIMIT_MIB: Final = 700
SECONDS_LIMIT: Final = 90
INTERRUPTED: Final = 130  # the exit code of a program that SIGINT ended


def run(out: Path, *, keep: bool = False) -> int:
    """Tell the story; returns 0 when every statement held, 1 when one did not, 130 when it was interrupted.

    Args:
        out: Folder for package, PDF, HTML and logs; made anew.
        keep: Whether the state folder stays too.
    """
    out = out.absolute()
    _make(out)
    state = out / "state" if keep else Path(tempfile.mkdtemp(prefix="sluicegate-demo-"))
    story = Story()
    stage = Stage(state, out / "up.log")
    story.title("Sluicegate demo", "The real system on this machine only, told in six steps. About a minute.")
    signal.signal(signal.SIGTERM, _interrupt)
    package: Path | None = None
    try:
        start(story, stage)
        decide(story, stage)
        rotate(story, stage)
        gate(story, stage)
        package = witness(story, stage, out)
    except (StepFailedError, DoorClosedError) as error:
        if str(error) not in story.failed:
            story.check(False, str(error))
    except BaseException as error:
        stage.memory.stop()
        stage.stop()
        _tidy(stage, out, keep=keep)
        if isinstance(error, KeyboardInterrupt):
            story.say(f"interrupted: everything is stopped; logs are in {out / 'logs'}")
            return INTERRUPTED
        raise
    _end(story, stage, out, package, keep=keep)
    return 1 if story.failed else 0


def _make(out: Path) -> None:
    """An empty folder of ours; a folder that holds anything else is left alone."""
    mark = out / ".sluicegate-demo"
    if out.exists() and any(out.iterdir()) and not mark.exists():
        raise SystemExit(
            f"error: {out} is not empty and was not made by the demo\n  fix: choose another --out"
        )
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    mark.touch()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _tidy(stage: Stage, out: Path, *, keep: bool) -> None:
    _copy_logs(stage.state / "logs", out / "logs")
    if not keep:
        shutil.rmtree(stage.state, ignore_errors=True)


def _end(story: Story, stage: Stage, out: Path, package: Path | None, *, keep: bool) -> None:
    """Stop everything, print the figures and where to look."""
    story.chapter(6, "Where to look", "The system stops; what it left behind is yours to read.")
    stage.memory.stop()
    left = stage.stop()
    story.check(not left, "clean stop: no process is left behind", detail=f"left: {sorted(left)}")
    seconds = time.monotonic() - story.started
    memory = stage.memory
    story.check(
        0 < memory.peak_mib < PSS_LIMIT_MIB,
        f"peak memory {memory.peak_mib} MiB: sum of PSS over {memory.peak_processes} processes, sampled "
        f"each second (limit {PSS_LIMIT_MIB})",
    )
    story.check(seconds < SECONDS_LIMIT, f"{seconds:.0f} seconds in all (limit {SECONDS_LIMIT})")
    _tidy(stage, out, keep=keep)
    if package is not None:
        _unpack_reports(package, out)
        story.table(
            ["", ""],
            [
                ["package", str(package)],
                ["report", str(out / "report.pdf")],
                ["the same as a page", str(out / "report.html")],
                ["trust root", f"{out / 'trust.json'}  (an auditor gets this by another way)"],
                ["logs", str(out / "logs")],
            ],
            words=2,
        )
    here = min(os.path.relpath(out), str(out), key=len)
    story.say("")
    story.say("Next:", "dim")
    story.table(
        [""],
        [
            *_activate(),
            ["sluicegate up                 # run it until Ctrl-C"],
            ["sluicegate links --why        # what every link waits for, while it runs"],
            ["https://127.0.0.1:9444/docs   # documentation of its API, while it runs"],
            *_verify(out, here),
        ],
    )
    story.say("")
    if story.failed:
        story.say(
            f"{len(story.failed)} of {story.held + len(story.failed)} statements did NOT hold:", "bold red"
        )
        for text in story.failed:
            story.say(f"✗ {text}", "red")
    else:
        story.say(f"All {story.held} statements held.", "bold green")


def _verify(out: Path, here: str) -> list[list[str]]:
    """How to verify the package, when the story came as far as that."""
    if not ((out / f"{TENANT}.zip").is_file() and (out / "trust.json").is_file()):
        return []
    return [[f"sluicegate evidence verify {here}/{TENANT}.zip --trust {here}/trust.json"]]


def _activate() -> list[list[str]]:
    """The line that puts `sluicegate` on the PATH, where it lives in a checkout's own environment."""
    if Path(sys.prefix) != Path.cwd() / ".venv":
        return []
    return [["source .venv/bin/activate     # once in each terminal: `sluicegate` is then on the PATH"]]


def _copy_logs(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)


def _unpack_reports(package: Path, out: Path) -> None:
    """Put PDF and HTML beside the package, as they stand in it."""
    import zipfile

    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            if name.endswith((".pdf", ".html")):
                (out / f"report{Path(name).suffix}").write_bytes(archive.read(name))
