"""The adapter of opa-python-client: each of its hazards, against small servers that misbehave."""

from __future__ import annotations

import json
import ssl
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest
import trustme
from rules_world import all_cases, shipped

from policy_engine.errors import EngineNoResult, UsageError
from policy_engine.limits import LIMITS
from policy_engine.rules.opa_server import OpaServerEngine

CASE = all_cases()[0]
SHORT = replace(LIMITS, opa_deadline_s=0.4)


class Server:
    """Answers each question by a function and counts them. Leaves out everything else that OPA does."""

    def __init__(self, respond, context=None):
        self.seen: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.seen.append((self.path, dict(self.headers)))
                respond(self, json.loads(body))

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        if context is not None:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


def reply(status=200, document=None, raw=None, headers=()):
    def respond(handler, question):
        given = document(question["input"]) if callable(document) else document
        body = raw if raw is not None else orjson.dumps(given)
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return respond


def complete(asked, **changes):
    result = {"policy_digest": shipped().policy_digest, "input_digest": asked["digest"], "violations": []}
    return {"result": {**result, **changes}}


def ask(url, **options):
    engine = OpaServerEngine(url, shipped(), limits=options.pop("limits", SHORT), **options)
    try:
        return engine.evaluate(CASE.input.body, CASE.input.digest)
    finally:
        engine.close()


def refused(server, match, **options):
    with pytest.raises(EngineNoResult, match=match) as caught:
        ask(f"http://127.0.0.1:{server.port}", **options)
    return str(caught.value)


def test_a_complete_result_is_an_answer():
    with Server(reply(document=complete)) as server:
        result = ask(f"http://127.0.0.1:{server.port}")
        assert () == result.violations
        path, _ = server.seen[0]
        assert path == "/v1/data/sluicegate/main/result?strict-builtin-errors=true"


def test_an_undefined_document_is_no_result():
    with Server(reply(document={})) as server:
        refused(server, "undefined")


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"result": None}, "no complete result"),
        ({"result": []}, "no complete result"),
        ({"result": {}}, "no complete result"),
        ({"result": {"violations": []}}, "no complete result"),
        ([], "undefined"),
        (lambda asked: complete(asked, policy_digest="0" * 64), "another policy"),
        (lambda asked: complete(asked, input_digest="0" * 64), "does not belong"),
        (lambda asked: complete(asked, violations=None), "no list"),
        (lambda asked: complete(asked, violations={}), "no list"),
        (lambda asked: complete(asked, violations=[{"rule": "a.b"}]), "not {rule"),
        (lambda asked: complete(asked, violations=["a.b"]), "not {rule"),
        (
            lambda asked: complete(asked, violations=[{"rule": 1, "subject": "", "path": "", "params": {}}]),
            "wrong type",
        ),
        (
            lambda asked: complete(
                asked, violations=[{"rule": "a.b", "subject": "", "path": "", "params": []}]
            ),
            "wrong type",
        ),
        (lambda asked: complete(asked, extra=1), "no complete result"),
    ],
)
def test_anything_but_the_complete_result_is_no_result(document, why):
    with Server(reply(document=document)) as server:
        refused(server, why)


@pytest.mark.parametrize("status", [400, 404, 500, 502, 503, 504])
def test_an_error_is_no_result_and_is_not_asked_again(status):
    with Server(reply(status=status, document={"code": "x"})) as server:
        refused(server, "gave no answer")
        assert len(server.seen) == 1


@pytest.mark.parametrize("raw", [b"", b"{bad", b"\xff\xfe", b"nothing"])
def test_what_is_not_json_is_no_result(raw):
    with Server(reply(raw=raw)) as server:
        refused(server, "gave no answer")


def test_a_redirect_is_not_followed():
    """It would carry the token to another host."""
    with Server(reply(document=complete)) as target:
        there = f"http://127.0.0.1:{target.port}/v1/data/sluicegate/main/result"
        for status in (301, 302, 307, 308):
            with Server(reply(status=status, document={}, headers=[("Location", there)])) as server:
                refused(server, "gave no answer", token="t0ken-value")
        assert [] == target.seen


def test_a_server_that_drips_is_late():
    """The client's own timeout starts anew with each octet."""

    def drip(handler, _question):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(60):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)

    with Server(drip) as server:
        begun = time.monotonic()
        refused(server, "in time")
        assert time.monotonic() - begun < 1.5


def test_a_silent_server_is_late():
    with Server(lambda *_: time.sleep(2)) as server:
        begun = time.monotonic()
        refused(server, "in time|gave no answer")
        assert time.monotonic() - begun < 1.5


def test_no_server_is_no_result_at_once():
    with Server(reply()) as server:
        port = server.port
    begun = time.monotonic()
    with pytest.raises(EngineNoResult, match="gave no answer"):
        ask(f"http://127.0.0.1:{port}")
    assert time.monotonic() - begun < 0.4


def test_the_environment_gives_no_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with Server(reply(document=complete)) as server:
        assert () == ask(f"http://127.0.0.1:{server.port}").violations


def test_neither_token_nor_input_is_in_the_error():
    with Server(reply(status=500, document=lambda asked: {"message": asked})) as server:
        said = refused(server, "gave no answer", token="t0ken-value")
        assert "t0ken" not in said
        assert "train" not in said
        assert server.seen[0][1]["Authorization"] == "Bearer t0ken-value"


def test_tls_is_checked_against_the_given_authority(tmp_path, monkeypatch):
    ours, others = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.issue_cert("127.0.0.1").configure_cert(context)
    for name, authority in (("ours.pem", ours), ("others.pem", others)):
        authority.cert_pem.write_to_path(str(tmp_path / name))
    # The environment must not add an authority, nor take ours away.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ours.pem"))
    with Server(reply(document=complete), context) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert () == ask(url, ca_file=tmp_path / "ours.pem").violations
        with pytest.raises(EngineNoResult):
            ask(url, ca_file=tmp_path / "others.pem")
        with pytest.raises(EngineNoResult):
            ask(url)
        assert len(server.seen) == 1


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1",
        "127.0.0.1:8181",
        "http://opa.example:8181",
        "https://opa.example/v1",
        "https://opa.example?x=1",
        "https://",
    ],
)
def test_an_unsafe_url_is_refused(url):
    with pytest.raises(UsageError):
        OpaServerEngine(url, shipped())


def test_an_input_over_the_limit_or_not_json_is_not_sent():
    with Server(reply(document=complete)) as server:
        refused(server, "larger than the limit", limits=replace(SHORT, engine_input_bytes=100))
        engine = OpaServerEngine(f"http://127.0.0.1:{server.port}", shipped(), limits=SHORT)
        for body in (b"{bad", b"", b'{"a":"\xff"}'):
            with pytest.raises(EngineNoResult, match="not JSON"):
                engine.evaluate(body, "0" * 64)
        engine.close()
        assert [] == server.seen
