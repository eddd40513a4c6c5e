"""What a running `up` says of itself: asked over its API, with a short time to answer."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from policy_engine.errors import CouldNotTell

ASK_SECONDS: Final = 3.0


def ask(endpoints: Mapping[str, Any], seconds: float = ASK_SECONDS) -> dict[str, Any]:
    """Readiness, status and links of the control plane.

    Args:
        endpoints: Content of ``run/endpoints.json``.
        seconds: How long each answer may take.

    Raises:
        CouldNotTell: It did not answer, or not as a control plane does.
    """
    try:
        url = urlsplit(str(endpoints["api"]))
        context = ssl.create_default_context(cafile=str(endpoints["ca"]))
        token = Path(endpoints["token_file"]).read_text(encoding="utf-8").strip()
        door = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=seconds, context=context)
        try:
            ready = _get(door, "/readyz", token)
            return {
                "missing": ready.get("missing", {}),
                "status": _get(door, "/v1/status", token),
                "links": list(_get(door, "/v1/links", token).get("links", [])),
            }
        finally:
            door.close()
    except TimeoutError:
        raise CouldNotTell(f"its API did not answer within {seconds:.0f} s", fix=_FIX) from None
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        raise CouldNotTell(f"its API did not answer ({type(error).__name__})", fix=_FIX) from None


def _get(door: http.client.HTTPSConnection, path: str, token: str) -> dict[str, Any]:
    door.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = door.getresponse()
    body = json.loads(answer.read())
    if answer.status not in {200, 503} or not isinstance(body, dict):
        raise CouldNotTell(f"its API answered {answer.status} to {path}", fix=_FIX)
    return body


def lines(told: Mapping[str, Any]) -> list[str]:
    """The answers for a person."""
    status, links, missing = told["status"], told["links"], told["missing"]
    ready = "yes" if not missing else "NO: " + "; ".join(f"{name}: {why}" for name, why in missing.items())
    rows = [("ready", ready)]
    rows += [
        (name, str(status[name])) for name in ("ledger", "key_store", "spool", "conductor") if name in status
    ]
    rows.append(("links", _links(links)))
    said = {"not ready", *(name.replace("_", " ") for name, _ in rows)}
    rows += [("warning", one) for one in status.get("warnings", ()) if one.partition(":")[0] not in said]
    return [f"  {name.replace('_', ' '):<10} {value}" for name, value in rows]


def _links(links: Sequence[Mapping[str, Any]]) -> str:
    states = [str((link.get("posture") or {}).get("state", "unknown")) for link in links]
    counted = {state: states.count(state) for state in sorted(set(states), reverse=True)}
    return ", ".join(
        f"{count} {state if state != 'none' else 'not keyed'}" for state, count in counted.items()
    )


_FIX: Final = "it may be stopped (SIGCONT it) or overloaded; logs/up.log says more"
