"""`links` and `rotate`: one line and a next step for everything that goes wrong, never a traceback."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

from keymgmt.cli import app

LINK = {
    "link": "cw-gcp-1",
    "live": {"key_ids": {"a": {"tx": "ab" * 16}}},
    "rotation": {"step": "parked"},
    "why": {"check": "rotation in step parked", "detail": "an end cannot be read", "next": "start agent x"},
    "waiting": ["read by cw-gcp-1-b"],
    "posture": {"state": "open", "posture": "unknown", "message": "rotation is parked"},
    "last_end": "rolled back",
    "last_why": "check values differ",
}
SILENT = {
    "link": "silent",
    "why": {
        "check": "stale sample",
        "detail": "the last sample of x is 12 s old",
        "next": "start or repair agent x",
    },
    "posture": {"state": "closed", "posture": "unknown", "message": "the last sample of x is 12 s old"},
    "gate": {"order": "closed", "reason": "stale_sample"},
}
ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("GET", "/v1/links"): (200, {"links": [LINK]}),
    ("GET", "/v1/links/cw-gcp-1"): (200, LINK),
    ("GET", "/v1/links/silent"): (200, SILENT),
    ("POST", "/v1/links/cw-gcp-1/rotate"): (202, {"rotation": "r" * 32, "link": "cw-gcp-1"}),
    ("POST", "/v1/links/busy/rotate"): (409, {"detail": "a rotation is open", "fix": "see --why"}),
    ("GET", "/v1/links/page"): (200, "not an object"),
    ("GET", "/v1/links/moved"): (302, {}),
    ("GET", "/v1/links/broken"): (503, {"detail": "the database did not answer"}),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, doc = ANSWERS.get((self.command, self.path), (404, {"detail": "no such link"}))
        if self.headers["Authorization"] != "Bearer the-token":
            status, doc = 401, {"detail": "no"}
        body = json.dumps(doc).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("state")
    ca = trustme.CA()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "token").write_text("the-token\n")
    (folder / "run").mkdir()
    noted = {"api": f"https://127.0.0.1:{server.server_port}", "ca": str(folder / "ca.pem")}
    (folder / "run" / "endpoints.json").write_text(json.dumps(noted | {"token_file": str(folder / "token")}))
    yield folder
    server.shutdown()


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_links_is_a_table(state: Path) -> None:
    code, output = run("links", "--state", str(state))
    assert 0 == code
    assert ["LINK", "GATE", "POSTURE", "KEY", "ROTATION", "WHY"] == output.splitlines()[0].split()
    assert "abababababab" in output


def test_why_names_the_check_and_the_next_command(state: Path) -> None:
    code, output = run("links", "cw-gcp-1", "--why", "--state", str(state))
    assert 0 == code
    for expected in (
        "an end cannot be read",
        "next: start agent x",
        "read by cw-gcp-1-b",
        "check values differ",
    ):
        assert expected in output


def test_a_closed_gate_is_shown_with_its_reason_and_nothing_is_said_twice(state: Path) -> None:
    code, output = run("links", "silent", "--why", "--state", str(state))
    assert 0 == code
    assert [
        "silent: stale sample",
        "  because: the last sample of x is 12 s old",
        "  gate: closed by order (stale sample), posture unknown",
        "  next: start or repair agent x",
    ] == output.splitlines()


def test_rotate_says_what_it_asked_for(state: Path) -> None:
    code, output = run("rotate", "cw-gcp-1", "--state", str(state))
    assert (0, True) == (code, "r" * 32 in output)


FAILURES = {
    "refused with a fix": (("rotate", "busy"), 1, "fix: see --why"),
    "no such link": (("links", "nowhere"), 1, "no such link"),
    "could not tell": (("links", "broken"), 3, "the database did not answer"),
    "a name that is a path": (("links", "../status"), 1, "404"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_one_line(state: Path, name: str) -> None:
    arguments, expected, text = FAILURES[name]
    code, output = run(*arguments, "--state", str(state))
    assert (expected, True) == (code, text in output), output
    assert "Traceback" not in output
    assert "the-token" not in output


def test_without_a_running_control_plane_it_says_how_to_start_one(tmp_path: Path) -> None:
    code, output = run("links", "--state", str(tmp_path))
    assert (3, True) == (code, "sluicegate up" in output)


WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "a token that is refused": (("--token-file", "other-token"), 1, "--token-file"),
    "a token file that is binary": (("--token-file", "binary"), 2, "no token file can be read"),
    "a token file that is empty": (("--token-file", "empty"), 2, "holds no token"),
    "a token file of two lines": (("--token-file", "two"), 2, "holds no token"),
    "a token file that is a folder": (("--token-file", "."), 2, "no token file can be read"),
    "no such token file": (("--token-file", "nowhere"), 2, "no token file can be read"),
    "a CA file that is none": (("--ca", "two"), 2, "--ca"),
    "no such CA file": (("--ca", "nowhere"), 2, "no CA file"),
    "http, which would show the token": (("--api", "http://127.0.0.1:1"), 2, "https"),
    "no address": (("--api", "https://[::1"), 2, "--api"),
    "an unknown output form": (("-o", "yaml"), 2, "-o text"),
    "nobody there": (("--api", "https://127.0.0.1:1"), 3, "sluicegate up"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_new_user_gets_wrong_is_named_with_a_way_out(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other-token").write_text("canary-token")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "two").write_text("canary-token\nand another\n")
    arguments, expected, said = WRONG[name]
    for command in (("links",), ("links", "--why"), ("rotate", "cw-gcp-1")):
        code, output = run(*command, "--state", str(state), *arguments)
        assert (expected, True) == (code, said in output), output
        assert "Traceback" not in output
        assert "canary" not in output


def test_an_answer_of_something_else_is_could_not_tell(state: Path) -> None:
    for path in ("page", "moved"):
        code, output = run("links", path, "--state", str(state))
        assert (3, True) == (code, "not the answer of a control plane" in output), output


def test_a_server_of_another_authority_is_not_trusted(state: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    code, output = run("links", "--state", str(state), "--ca", str(other))
    assert (3, True) == (code, "did not answer" in output)
