"""The command on terminals of any encoding, and on packages whose figures are none: never another exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_world import DAY, END, HOUR, T0, World, decision, make
from typer.testing import CliRunner

from evidence import cli, telling
from evidence.canonical import canonical
from evidence.package.attacks import pack, unpack
from evidence.package.build import Exported

RUN = CliRunner()
NAME = "z\u00fcrich-\u6771"


@pytest.fixture(scope="module")
def abroad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Exported]]:
    """A package of a scope whose name few encodings have."""
    made = make(tmp_path_factory.mktemp("abroad"), logs=False)
    made.now = T0 + DAY
    made.commit([decision(NAME, 1, allowed=True)])
    made.tick(END + HOUR)
    yield made, made.export(NAME, (T0, END + 1), "abroad.zip")
    made.db.stop()


def run(encoding: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """As at a terminal of this encoding, through the program's own entry point."""
    code = "import sys; from policy_engine.cli import main; sys.argv[1:1] = ['evidence']; main()"
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env=environment, encoding=encoding, check=False)


@pytest.mark.parametrize("encoding", ["cp1252", "koi8-r", "utf-8"])
def test_a_name_that_the_terminal_cannot_show_changes_no_verdict(
    abroad: tuple[World, Exported], encoding: str
) -> None:
    package, trust = abroad[1].path, abroad[1].trust_path
    shown = NAME.encode(encoding, "backslashreplace").decode(encoding)
    for code, arguments in (
        (telling.OK, ("verify", package, "--trust", trust)),
        (telling.NO_SIGNER, ("verify", package)),
        (telling.OK, ("show", package)),
    ):
        done = run(encoding, *arguments)
        assert (code, "", True) == (done.returncode, done.stderr, shown in done.stdout), done.stderr
    done = run(encoding, "verify", package, "--key", abroad[1].fingerprint, "--scope", f"{NAME}={'0' * 32}")
    assert (telling.NO, True) == (done.returncode, "another id" in done.stderr), done.stderr


@pytest.mark.parametrize("command", [["verify"], ["verify", "--json"], ["show"], ["show", "--json"]])
def test_what_cannot_be_printed_establishes_nothing(
    abroad: tuple[World, Exported], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, err: bool = False, **__: object) -> None:
        if not err:
            raise RuntimeError("the terminal is gone")

    monkeypatch.setattr(telling.typer, "echo", fails)
    done = RUN.invoke(cli.app, [command[0], str(abroad[1].path), *command[1:]])
    assert (telling.NO, True) == (done.exit_code, isinstance(done.exception, SystemExit))


@pytest.mark.parametrize(
    ("error", "told"), [(BrokenPipeError(32, "x"), ""), (OSError(28, "full"), "VERDICT NOT")]
)
def test_an_output_that_is_closed_or_full_establishes_nothing(
    abroad: tuple[World, Exported], error: OSError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "print_verdict", fails)
    done = RUN.invoke(cli.app, ["verify", str(abroad[1].path), "--trust", str(abroad[1].trust_path)])
    assert (telling.NO, told) == (done.exit_code, done.stderr[:11])


GOOD = {
    "labels": ["a"], "scope": "acme", "window": ["b", "c"], "records": {"total": 1}, "findings": ["d"],
    "decisions": {"admitted": 1, "refused": 2}, "attribution": {"matched": 3, "total": 4},
}  # fmt: skip
ODD = {
    "an empty object": b"{}",
    "a list": b"[]",
    "a number": b"1",
    "nothing": b"",
    "not canonical": b'{"b":1, "a":2}',
    "no text": b"\xff",
    "a number for an object": canonical(GOOD | {"decisions": 1}),
    "a list for a number": canonical(GOOD | {"records": {"total": [1]}}),
    "labels that are no words": canonical(GOOD | {"labels": [["a"]]}),
    "no list of findings": canonical(GOOD | {"findings": 7}),
    "a window of one time": canonical(GOOD | {"window": ["b"]}),
    "a window of three": canonical(GOOD | {"window": ["b", "c", "d"]}),
    "a scope that is none": canonical(GOOD | {"scope": None}),
}


@pytest.mark.parametrize("odd", ODD)
def test_figures_of_another_shape_are_named(abroad: tuple[World, Exported], tmp_path: Path, odd: str) -> None:
    members = unpack(abroad[1].path.read_bytes())
    path = tmp_path / "odd.zip"
    path.write_bytes(pack(members | {"figures.json": ODD[odd]}))
    for more in ([], ["--json"], ["--extract", str(tmp_path / "out")]):
        done = RUN.invoke(cli.app, ["show", str(path), *more])
        told = "CANNOT BE SHOWN: step 15: figures.json: "
        assert (1, "", told) == (done.exit_code, done.stdout, done.stderr[: len(told)])
        assert "Error" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_figures_of_this_shape_are_shown_and_none_are_missed(
    abroad: tuple[World, Exported], tmp_path: Path
) -> None:
    members = unpack(abroad[1].path.read_bytes())
    path = tmp_path / "good.zip"
    path.write_bytes(pack(members | {"figures.json": canonical(GOOD)}))
    assert "accesses     3 of 4 matched" in RUN.invoke(cli.app, ["show", str(path)]).stdout
    path.write_bytes(pack({name: data for name, data in members.items() if name != "figures.json"}))
    done = RUN.invoke(cli.app, ["show", str(path)])
    assert (1, True) == (done.exit_code, "step 6: figures.json: is missing" in done.stderr)
