"""Programs beside an agent, started by hand: what is wrong is one line, never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ("software_dataplane", "software_relay", "software_traffic")


def run(module: str, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "content", [None, b"{", b"[]", b"{}", b"\xff", b'{"links":[{"name":"x"}],"control":"c"}']
)
def test_what_is_no_configuration_is_one_line(module: str, content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_bytes(content)
    done = run(f"keymgmt.drivers.{module}", "--config", str(file))
    last = done.stderr.splitlines()[-1]
    assert (2, True, False) == (done.returncode, str(file) in last, "Traceback" in done.stderr), done.stderr


def test_faults_count_only_on_the_command_line(tmp_path: Path) -> None:
    from keymgmt.drivers.software_program import configured

    file = tmp_path / "config.json"
    file.write_text(json.dumps({"allow_faults": True}))
    flag = ("allow-faults", "drills only")
    args = ["--config", str(file)]
    assert {"allow_faults": False} == configured("x", args, lambda _doc: None, flag)
    assert {"allow_faults": True} == configured("x", [*args, "--allow-faults"], lambda _doc: None, flag)


@pytest.mark.parametrize("ca", ["missing.pem", "ca.pem"])
def test_an_enrolment_that_fails_says_why_without_its_token(ca: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    options = {"host": "127.0.0.1", "port": "9", "ca": str(tmp_path / ca), "name": "a1", "role-id": "r"}
    options |= {"folder": str(tmp_path / "agent"), "keys-mount": "links-e1"}
    args = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = run("keymgmt.agents.enrol", *args, stdin="hvs.canary-token\n")
    assert (1, "a1 is not enrolled") == (done.returncode, done.stderr[:18])
    assert "Traceback" not in done.stderr
    assert "canary" not in done.stdout + done.stderr
