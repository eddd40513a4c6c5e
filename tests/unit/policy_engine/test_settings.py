"""Settings: frozen, nothing unknown, each value knows its source, secrets never shown."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from policy_engine import settings
from policy_engine.errors import SettingsError
from policy_engine.settings import Settings, load


def rows(loaded):
    return {name: (value, source) for name, value, source in loaded.rows()}


def test_defaults_say_that_they_are_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ("9443", "default") == rows(load(environ={}))["admission_port"]


def test_command_line_beats_environment_beats_file(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("api_port: 1001\nagents_port: 1002\nadmission_port: 1003\n")
    environ = {"SLUICEGATE_AGENTS_PORT": "2002", "SLUICEGATE_ADMISSION_PORT": "2003"}
    got = rows(load({"admission_port": 3003, "tick_seconds": None}, environ, file))
    assert ("3003", "command line") == got["admission_port"]
    assert ("2002", "environment SLUICEGATE_AGENTS_PORT") == got["agents_port"]
    assert ("1001", f"file {file}") == got["api_port"]
    assert "default" == got["tick_seconds"][1]


def test_the_short_name_of_the_state_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    got = rows(load(environ={"SLUICEGATE_STATE": "/x"}))
    assert ("/x", "environment SLUICEGATE_STATE") == got["state"]
    (tmp_path / "sluicegate.yaml").write_text("state: /y\n")
    with pytest.raises(
        SettingsError, match="state is not read from a file"
    ):  # half of the commands read none
        load(environ={})


@pytest.mark.parametrize(
    "environ",
    [{"SLUICEGATE_ADMISION_PORT": "1"}, {"SLUICEGATE_API_PORT": "-1"}, {"SLUICEGATE_API_PORT": "x"}],
)
def test_unknown_names_and_wrong_values_are_refused_with_their_source(environ, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=next(iter(environ))):
        load(environ=environ)


def test_unknown_keys_in_the_file_are_refused(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("api_prot: 1001\n")
    with pytest.raises(SettingsError, match=r"api_prot \(file "):
        load(environ={}, file=file)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "1: 2\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError):
        load(environ={}, file=file)


def test_secrets_are_redacted_in_rows_and_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = load(environ={"SLUICEGATE_UNSEAL_KEY": "canary-unseal"})
    assert ("(redacted)", "environment SLUICEGATE_UNSEAL_KEY") == rows(loaded)["unseal_key"]
    assert "canary" not in repr(loaded)
    with pytest.raises(SettingsError) as caught:
        load(environ={"SLUICEGATE_API_PORT": "canary-value"})
    assert "canary" not in str(caught.value)


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Settings().host = "0.0.0.0"


def test_every_setting_is_documented():
    assert [] == [name for name, field in Settings.model_fields.items() if not field.description]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("host: a\nhost: b\n", ":2: host: the key stands here twice, first on line 1"),
        ("host: a\ntraffic: no\n", ":2: traffic: the plain word no could be a truth value or a text"),
        ("host: a\napi_port: [\n", ":3: this is not YAML"),
        ("- a\n", ":1: this is no mapping"),
    ],
)
def test_the_file_is_read_strictly_and_the_line_is_named(tmp_path, text, says):
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(environ={}, file=file)
    assert f"{file}{says}" in str(caught.value)
    assert caught.value.fix


def test_comments_alone_and_fractions_are_good(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("# nothing set\n\n")
    load(environ={}, file=file)
    file.write_text("tick_seconds: 0.5\ntraffic: false\n")
    settings = load(environ={}, file=file).settings
    assert (0.5, False) == (settings.tick_seconds, settings.traffic)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nope.yaml cannot be read: No such file"):
        load(environ={}, file=tmp_path / "nope.yaml")


def test_every_variable_that_the_program_names_may_be_set():
    """A hint such as `set SLUICEGATE_DEBUG=1` must not make the next start refuse its environment."""
    root = Path(settings.__file__).parent.parent
    named = {
        name
        for package in ("policy_engine", "keymgmt", "evidence")
        for file in (root / package).rglob("*.py")
        for name in re.findall(r"SLUICEGATE_([A-Z]+(?:_[A-Z]+)*)\b", file.read_text("utf-8"))
    }
    assert {"STATE", "CONFIG", "DEBUG"} <= named
    assert set() == named - settings.RESERVED - {field.upper() for field in Settings.model_fields}
