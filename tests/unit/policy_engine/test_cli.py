"""The command root: light, helpful, never a traceback."""

import json
import os
import socket
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from evidence.errors import NotAttributed
from evidence.telling import plain
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


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError(2, "No such file or directory", "/proc/x"), "/proc/x: No such file or directory"),
        (PermissionError(13, "Permission denied", b"/root/a\x1b"), "/root/a?: Permission denied"),
        (ModuleNotFoundError("x", name="hvac"), "this needs hvac, which is not installed"),
    ],
)
def test_errors_of_the_system_name_path_and_fix(error, line, capsys):
    assert 2 == cli._report(error)
    first, second = capsys.readouterr().err.splitlines()
    assert f"error: {line}" == first
    assert second.startswith("  fix: ")


def test_the_extra_that_is_named_brings_the_command(capsys):
    cli._report(ModuleNotFoundError("x", name="yaml"))
    assert "with its extra 'server'\n" in capsys.readouterr().err


def test_a_yaml_error_names_file_and_line(capsys):
    import yaml

    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load("a: [\n")
    assert 2 == cli._report(caught.value)
    assert "line 2" in capsys.readouterr().err


def test_a_demo_without_its_parts_starts_nothing(monkeypatch, tmp_path, capsys):
    from policy_engine.demo import cli as demo

    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "hvac" else name)
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, ModuleNotFoundError)
    assert 2 == cli._report(result.exception)
    assert "with its extra 'server'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("where", ["/proc/x", "FILE", "FILE/below"])
def test_a_state_folder_that_cannot_be_made_is_named(where, tmp_path):
    (tmp_path / "f").write_text("")
    path = where.replace("FILE", str(tmp_path / "f"))
    done = run("up", "--state", path)
    assert 1 == done.returncode
    assert f"error: state folder {path} cannot be used: " in done.stderr
    assert "fix: choose a folder" in done.stderr


def test_an_estate_that_is_not_there_starts_nothing(tmp_path):
    done = run("up", "--state", str(tmp_path / "s"), "--estate", str(tmp_path / "nope"))
    assert 1 == done.returncode
    assert f"no folder of declared resources at {tmp_path}/nope" in done.stderr
    assert not (tmp_path / "s").exists()


def test_a_taken_port_is_named_with_its_setting_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "c.yaml").write_text(f"api_port: {port}\nadmission_port: 0\nagents_port: 0\n")
        done = run("up", "--state", str(tmp_path / "s"), "--config", str(tmp_path / "c.yaml"))
    assert 1 == done.returncode
    assert f"error: port {port} on 127.0.0.1 is taken (setting api_port)" in done.stdout
    assert "SLUICEGATE_API_PORT" in done.stdout
    assert not (tmp_path / "s" / "openbao" / "log").exists()


def test_config_lists_what_is_known_when_a_setting_is_refused(tmp_path):
    (tmp_path / "c.yaml").write_text("api_prot: 1\n")
    done = run("config", "--config", str(tmp_path / "c.yaml"))
    assert 1 == done.returncode
    assert "api_prot" in done.stderr
    assert "api_port" in done.stdout
    assert "Traceback" not in done.stderr


def test_status_names_survivors_and_both_ways_on(tmp_path):
    from keymgmt.processes import Spawned, hold
    from policy_engine.embedded.state import StateFolder

    state = StateFolder.prepare(tmp_path / "s")
    me = Spawned.of_self("agent", "l-a")
    descriptor = hold(state.folder("run") / "processes" / "agent-l-a.json", me)
    done = run("status", "--state", str(state.root))
    os.close(descriptor)
    assert 1 == done.returncode
    assert f"agent/l-a                    pid {me.pid}" in done.stdout
    assert f"adopt them: sluicegate up --state {state.root}" in done.stdout
    assert f"kill {me.pid}" in done.stdout


def test_our_errors_show_what_to_do(capsys):
    from policy_engine.errors import SettingsError

    assert 1 == cli._report(SettingsError("bad", fix="do this"))
    assert "error: bad\n  fix: do this\n" == capsys.readouterr().err


def test_what_was_imported_and_not_attributed_is_not_called_not_imported(capsys):
    with pytest.raises(typer.Exit), plain("not imported"):
        raise NotAttributed("run c/7/1/0 is listed twice", fix="list it once")
    told = "IMPORTED, NOT ATTRIBUTED: run c/7/1/0 is listed twice\n"
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize(
    ("failure", "extra"),
    [
        ("not verified", "verify"),
        ("cannot be shown", "verify"),
        ("not exported", "server"),
        ("not imported", "server"),
    ],
)
def test_evidence_names_the_extra_that_brings_the_command(failure, extra, capsys):
    with pytest.raises(typer.Exit), plain(failure):
        raise ModuleNotFoundError("x", name="sqlmodel")
    assert f"with its extra '{extra}'\n" in capsys.readouterr().err
