"""`sluicegate links` and `rotate`: thin clients of the control plane's API; `agent`: one link end's agent.

They read the API's address and a token from files that `sluicegate up` (or an operator) wrote; the token is
never an argument. Exit codes: 0 done, 1 the answer is no, 2 usage, 3 could not tell.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

_STATE: Final = "SLUICEGATE_STATE"
_TIMEOUT_S: Final = 15.0
_NO, _UNKNOWN = 1, 3
_FIX_FILE: Final = "name the file, or start `sluicegate up`"
_FIX_AWAY: Final = "start `sluicegate up`, or look whether it still runs: `sluicegate status`"

STATE = typer.Option(None, "--state", help=f"State folder (default ${_STATE} or ./sluicegate-state).")
API = typer.Option(
    None, "--api", help="Address of the API, https://host:port (default: from the state folder)."
)
TOKEN = typer.Option(None, "--token-file", help="File with a bearer token (default: from the state folder).")
CA = typer.Option(None, "--ca", help="CA file of the API's certificate (default: from the state folder).")
OUTPUT = typer.Option("text", "--output", "-o", help="text or json.")


class Fail(Exception):  # noqa: N818 - an answer for people, not a fault
    """Ends a command: one line, what to do, and the exit code."""

    def __init__(self, code: int, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.code, self.fix = code, fix


@app.command()
def links(  # noqa: PLR0917 - typer reads options from the signature
    link: str | None = typer.Argument(None, help="One link; all when left out."),
    why: bool = typer.Option(
        False, "--why", help="Name the first check that is not good and that can be acted on, and how."
    ),
    state: Path | None = STATE,
    api: str | None = API,
    token_file: Path | None = TOKEN,
    ca: Path | None = CA,
    output: str = OUTPUT,
) -> None:
    """List links with their keys and posture; `--why` explains what a link waits for."""
    with _report():
        _check_output(output)
        client = Client.open(state, api, token_file, ca)
        found = [client.get(f"/v1/links/{quote(link, safe='')}")] if link else client.items("/v1/links")
        if output == "json":
            typer.echo(json.dumps(found, indent=2, sort_keys=True))
        elif why or link:
            typer.echo("\n".join(explain(entry) for entry in found))
        else:
            typer.echo(table(found))


@app.command()
def rotate(  # noqa: PLR0917
    link: str = typer.Argument(..., help="The link to rotate."),
    state: Path | None = STATE,
    api: str | None = API,
    token_file: Path | None = TOKEN,
    ca: Path | None = CA,
    output: str = OUTPUT,
) -> None:
    """Rotate the key of a link now; returns at once, `sluicegate links LINK` shows the progress."""
    with _report():
        _check_output(output)
        answer = Client.open(state, api, token_file, ca).post(f"/v1/links/{quote(link, safe='')}/rotate")
        if output == "json":
            typer.echo(json.dumps(answer, sort_keys=True))
            return
        typer.echo(f"rotation {answer.get('rotation', '?')} of {link} is asked for")
        typer.echo(f"  next: sluicegate links {link}")


@app.command()
def agent(
    config: Annotated[Path, typer.Option("--config", help="The agent's configuration (JSON).")],
) -> None:
    """Run the agent of one link end until SIGTERM: on or beside the switch, enrolled before."""
    with _report():
        try:
            doc = json.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Fail(2, f"{config} cannot be read ({type(error).__name__})", "give --config FILE") from None
        from keymgmt.agents.agent import run
        from keymgmt.agents.config import AgentConfig

        try:
            AgentConfig.from_json(doc)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"{config} is no agent's configuration ({type(error).__name__}: {str(error)[:64]})"
            raise Fail(2, why, "see AgentConfig in keymgmt/agents/config.py for its fields") from None
        run(doc)


class Client:
    """HTTPS with a verified certificate and a token from a file."""

    def __init__(self, base: str, token: str, ca: Path) -> None:
        self._base, self._token, self._ca = base.rstrip("/"), token, ca

    @classmethod
    def open(cls, state: Path | None, api: str | None, token_file: Path | None, ca: Path | None) -> Client:
        """Address, token and CA from options, else from what `sluicegate up` noted in its state folder."""
        folder = state or Path(os.environ.get(_STATE, "sluicegate-state"))
        noted = {} if api and token_file and ca else cls._noted(folder)
        token_file, ca = token_file or Path(noted["token_file"]), ca or Path(noted["ca"])
        if not ca.is_file():
            raise Fail(2, f"no CA file at {ca}", _FIX_FILE)
        base = api or str(noted["api"])
        if not base.startswith("https://"):
            raise Fail(2, f"{base} is no https address", "give --api https://host:port: a token goes with it")
        return cls(base, _token(token_file), ca)

    @staticmethod
    def _noted(folder: Path) -> dict[str, str]:
        try:
            doc = json.loads((folder / "run" / "endpoints.json").read_text(encoding="utf-8"))
            return {name: str(doc[name]) for name in ("api", "ca", "token_file")}
        except (OSError, ValueError, KeyError, TypeError):
            why = f"no running control plane is noted in {folder}"
            fix = "start `sluicegate up` with this state folder, or give --api, --token-file and --ca"
            raise Fail(_UNKNOWN, why, fix) from None

    def get(self, path: str) -> dict[str, Any]:
        """One document."""
        return dict(self._call("GET", path))

    def post(self, path: str) -> dict[str, Any]:
        """Ask for something; one document back."""
        return dict(self._call("POST", path))

    def items(self, path: str) -> list[dict[str, Any]]:
        """A list, bare or under the name of its resource."""
        found: Any = self._call("GET", path)
        if isinstance(found, Mapping):
            found = next((value for value in found.values() if isinstance(value, list)), [])
        return [dict(entry) for entry in found if isinstance(entry, Mapping)]

    def _call(self, method: str, path: str) -> Any:
        import ssl

        import httpx2

        try:
            context = ssl.create_default_context(cafile=str(self._ca))
            with httpx2.Client(verify=context, timeout=_TIMEOUT_S, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {self._token}"}
                response = client.request(method, self._base + path, headers=headers)
        except httpx2.InvalidURL:
            raise Fail(2, f"{self._base} is no address", "give --api https://host:port") from None
        except ssl.SSLError as error:
            why = f"{self._ca} is no file of CA certificates ({type(error).__name__})"
            raise Fail(2, why, "name a PEM file with --ca") from None
        except (httpx2.HTTPError, OSError) as error:
            why = f"the API at {self._base} did not answer ({type(error).__name__})"
            raise Fail(_UNKNOWN, why, _FIX_AWAY) from None
        return _document(response)


def _token(file: Path) -> str:
    """The token in a file; its content is never quoted."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = f"no token file can be read at {file} ({type(error).__name__})"
        raise Fail(2, why, _FIX_FILE) from None
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise Fail(2, f"{file} holds no token", "name the file with --token-file")
    return text


def _check_output(output: str) -> None:
    if output not in {"text", "json"}:
        raise Fail(2, f"no output form {output}", "use -o text or -o json")


def _document(response: Any) -> Any:
    """The answer's document; an error status becomes its own words, cut and without anything we sent."""
    try:
        doc = response.json()
    except ValueError:
        doc = None
    status = response.status_code
    if status < 300 and isinstance(doc, dict | list):
        return doc
    if status < 400:
        raise Fail(_UNKNOWN, f"{status}: this is not the answer of a control plane", "look at --api")
    problem = doc if isinstance(doc, dict) else {}
    words, fix = problem.get("detail") or problem.get("title") or "refused", problem.get("fix", "")
    if status == 401 and not fix:
        fix = "name a valid token with --token-file (`sluicegate up` writes tokens/admin.token)"
    code = _UNKNOWN if status >= 500 or status == 429 else _NO
    raise Fail(code, f"{status}: {str(words)[:256]}", str(fix)[:256])


@contextlib.contextmanager
def _report() -> Iterator[None]:
    """Turn `Fail` into one line and an exit code: no traceback reaches a user."""
    try:
        yield
    except Fail as error:
        typer.echo(f"error: {error}", err=True)
        if error.fix:
            typer.echo(f"  fix: {error.fix}", err=True)
        raise typer.Exit(error.code) from None


# --- text ---------------------------------------------------------------------------------------------------


def table(entries: Sequence[Mapping[str, Any]]) -> str:
    """One line a link."""
    if not entries:
        return "no links are declared"
    rows: list[tuple[str, ...]] = [("LINK", "GATE", "POSTURE", "KEY", "ROTATION", "WHY")]
    rows += [_row(entry) for entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    rotation, live, why = entry.get("rotation") or {}, entry.get("live") or {}, entry.get("why") or {}
    posture = entry.get("posture") or {}
    keys = (live.get("key_ids") or {}).get("a") or {}
    return (
        _name(entry),
        str(posture.get("state", "-")),
        str(posture.get("posture", "-")),
        str(keys.get("tx", "-"))[:12],
        str(rotation.get("step", "-")),
        str(why.get("check", "-")),
    )


def explain(entry: Mapping[str, Any]) -> str:
    """Everything known of one link: first failing check, the operator's next command, the last rotation."""
    why, posture = entry.get("why") or {}, entry.get("posture") or {}
    lines = [f"{_name(entry)}: {why.get('check', 'ok')}"]
    if why.get("detail"):
        lines.append(f"  because: {why['detail']}")
    lines += [f"  waits for: {text}" for text in entry.get("waiting") or ()]
    if entry.get("last_end"):
        last_why = f" ({entry['last_why']})" if entry.get("last_why") else ""
        lines.append(f"  last rotation: {entry['last_end']}{last_why}")
    if posture:
        order = entry.get("gate") or {}
        by = (
            f" by order ({str(order.get('reason')).replace('_', ' ')})"
            if order.get("order") == "closed"
            else ""
        )
        lines.append(f"  gate: {posture.get('state')}{by}, posture {posture.get('posture')}")
        message = posture.get("message")
        lines += [f"  posture: {message}"] if message and message != why.get("detail") else []
    if why.get("next"):
        lines.append(f"  next: {why['next']}")
    return "\n".join(lines)


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("link") or entry.get("name") or "?")
