"""The command root: light, helpful, never a traceback."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from policy_engine import cli

HEAVY = (
    "fastapi",
    "sqlmodel",
    "hvac",
    "reportlab",
    "sqlalchemy",
    "uvicorn",
    "pydantic_settings",
    "wasmtime",
    "duckdb",
    "requests",
)


def run(*args, code=None):
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "policy_engine.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def imported_by(args):
    code = (
        "import sys\nfrom policy_engine import cli\n"
        f"sys.argv = ['sluicegate', *{args!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    line = [line for line in run(code=code).stdout.splitlines() if line.startswith("HEAVY")]
    return line[-1]


def test_the_root_imports_nothing_heavy():
    assert "HEAVY []" == imported_by(["--help"])


def test_the_agent_imports_nothing_of_the_server(tmp_path):
    server = {"host": "127.0.0.1", "port": 1, "ca": "none"}
    config = {
        "name": "l-a",
        "link": "l",
        "endpoint": "a",
        "sci": "02c0de0000010001",
        "peer_sci": "02c0de0000020001",
        "control": str(tmp_path / "dp"),
        "control_plane": server,
        "openbao": server,
        "bao": {"keys_mount": "links-e1"},
        "folder": str(tmp_path / "agent"),
        "permit_roots": {},
    }
    (tmp_path / "a.json").write_text(json.dumps(config))
    assert "HEAVY []" == imported_by(["agent", "--config", str(tmp_path / "a.json")])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": 1}'])
def test_an_agent_without_a_usable_configuration_says_so(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    done = run("agent", "--config", str(tmp_path / "a.json"))
    assert (2, "") == (done.returncode, done.stdout)
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr


def test_verify_imports_nothing_of_the_server(tmp_path):
    missing = str(tmp_path / "no.zip")
    found = imported_by(["evidence", "verify", missing])
    assert not {"fastapi", "sqlmodel", "hvac", "reportlab"} & set(eval(found.removeprefix("HEAVY ")))


def test_help_names_every_command():
    out = CliRunner().invoke(cli.app, ["--help"]).output
    assert [] == [name for name in cli.MOUNTS if name not in out]


@pytest.mark.parametrize("name", cli.MOUNTS)
def test_every_command_resolves_and_explains_itself(name):
    result = CliRunner().invoke(cli.app, [name, "--help"])
    assert 0 == result.exit_code, result.output
    assert "Usage" in result.output


def test_version():
    assert run("--version").stdout.startswith("sluicegate 0.")


def test_an_unknown_command_is_wrong_usage():
    done = run("rotat")
    assert 2 == done.returncode
    assert "No such command" in done.stderr


@pytest.mark.parametrize(
    ("error", "shown", "code"),
    [
        (RuntimeError("canary-secret"), "RuntimeError", 3),
        (ModuleNotFoundError("x", name="hvac"), "hvac", 2),
    ],
)
def test_foreign_errors_show_neither_traceback_nor_text(error, shown, code, capsys):
    assert code == cli._report(error)
    err = capsys.readouterr().err
    assert shown in err
    assert "canary" not in err
    assert "Traceback" not in err


def test_our_errors_show_what_to_do(capsys):
    from policy_engine.errors import SettingsError

    assert 1 == cli._report(SettingsError("bad", fix="do this"))
    assert "error: bad\n  fix: do this\n" == capsys.readouterr().err
