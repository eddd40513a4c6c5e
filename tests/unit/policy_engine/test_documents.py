"""What the documents promise and no other test would miss: commands, targets, links, drawings, shipped files."""

import ast
import datetime as dt
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import typer

import evidence.errors
import keymgmt.errors
import policy_engine.errors
from policy_engine import cli
from policy_engine.embedded.ca import Authority

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = re.findall(r"^    (sluicegate [^#\n]+?) *(?:#.*)?$", README, re.MULTILINE)
OFFLINE = [line for line in COMMANDS if line.split()[1] in {"check", "facts"}]


def targets():
    return dict(re.findall(r"^([a-z0-9]+): ?([a-z ]*)$", MAKEFILE, re.MULTILINE))


def test_every_target_that_is_named_is_there():
    named = set(re.findall(r"\bmake ([a-z0-9]+)\b", README))
    assert {"demo", "test", "up", "lint", "bench", "rego"} <= named
    assert set() == (named | {"e2e"}) - set(targets())


def test_the_demo_needs_no_go():
    """OPA is built for tests and lint; what is set up for the demo comes from wheels."""
    assert ("setup", "setup") == (targets()["demo"], targets()["up"])
    recipe = MAKEFILE.split("\nsetup:\n", 1)[1].split("\n\n", 1)[0]
    assert "toolchain" not in recipe
    assert "--group" not in recipe


def test_ci_runs_lint_demo_and_test():
    assert ["lint", "demo", "test"] == re.findall(
        r"; make (\w+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE
    )
    assert os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_readme_is_understood(line):
    """Parsed, not run: names and options of commands that want a running system."""
    root = typer.main.get_command(cli.app)
    _, *arguments = shlex.split(line)
    if arguments == ["--help"]:
        return
    with root.make_context("sluicegate", [], resilient_parsing=True) as context:
        name, command, rest = root.resolve_command(context, arguments)
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", OFFLINE)
def test_every_command_that_needs_no_running_system_does_what_it_says(line):
    done = subprocess.run(
        [sys.executable, "-m", "policy_engine.cli", *shlex.split(line)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


def test_no_command_was_overlooked():
    assert len(COMMANDS) >= 7
    assert 3 == len(OFFLINE)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page):
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [] == [link for link in found if "://" not in link and not (page.parent / link).exists()]


def test_the_picture_is_one():
    assert ET.parse(ROOT / "docs/img/loops.svg").getroot().tag.endswith("}svg")


@pytest.mark.parametrize(
    "module", [policy_engine.errors, keymgmt.errors, evidence.errors], ids=lambda module: module.__name__
)
def test_the_error_tree_is_the_one_that_is_drawn(module):
    """Name -> the name above it, by the column in which it is drawn."""
    drawn, stack = {}, []
    for line in inspect.getdoc(module).splitlines():
        entry = re.match(r"^ *([ │|]*(?:[├└+][─-]{2} ))?([A-Z]\w+)", line)
        if entry is None or not (entry[1] or entry[2].endswith("Error")):
            continue
        stack = [(column, name) for column, name in stack if column < entry.start(2)]
        drawn[entry[2]] = stack[-1][1] if stack else None
        stack.append((entry.start(2), entry[2]))
    body = ast.parse(inspect.getsource(module)).body
    declared = [getattr(module, node.name) for node in body if isinstance(node, ast.ClassDef)]
    errors = [one for one in declared if issubclass(one, Exception)]
    assert drawn == {
        one.__name__: one.__base__.__name__ if one.__base__ is not Exception else None for one in errors
    }


@pytest.mark.parametrize("package", ["policy_engine", "keymgmt", "evidence"])
def test_packages_are_typed(package):
    assert (ROOT / package / "py.typed").is_file()


def test_what_the_wheel_carries_is_there():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {"rego", "deploy/examples", "deploy/openbao"} == set(wheel["force-include"])
    assert [] == [path for path in wheel["force-include"] if not any((ROOT / path).iterdir())]


def test_verifying_in_the_demo_really_is_offline(tmp_path):
    """The harness that the demo verifies in ends a process which opens a socket, and no other."""

    def offline(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "policy_engine.demo.offline", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert 0 == offline("check", "deploy/examples/estate").returncode
    ca = Authority.open(tmp_path, "a CA", dt.datetime.now(dt.UTC)).ca_file
    (tmp_path / "token").write_text("a-token-of-nobody")
    door = ("--api", "https://127.0.0.1:1", "--ca", str(ca), "--token-file", str(tmp_path / "token"))
    refused = offline("links", *door)
    assert 97 == refused.returncode, refused.stderr
    assert "a socket was opened" in refused.stderr
