"""Public reviews and requests: every one is answered, with its uid, and never a 500."""

import json
from pathlib import Path
from typing import Any

import pytest
from admission_world import World, running

pytestmark = pytest.mark.samples


def wrapped(request: Any) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def answer_all(world: World, files: list[Path], *, envelope: bool) -> dict[str, int]:
    seen = {"allowed": 0, "refused": 0, "no review": 0}
    async with world.connection("train-us") as connection:
        for file in files:
            document = json.loads(file.read_bytes())
            request = document if envelope else document.get("request")
            body = wrapped(document) if envelope else document
            answer = await connection.post("/admit/train-us", body)
            uid = request.get("uid") if isinstance(request, dict) else None
            if not uid:
                assert (answer.status, answer.response["allowed"]) == (400, False), file.name
                assert answer.message
                seen["no review"] += 1
                continue
            assert answer.status == 200, file.name
            assert answer.response["uid"] == uid, file.name
            assert answer.allowed or answer.message, file.name
            seen["allowed" if answer.allowed else "refused"] += 1
    return seen


async def test_every_public_request_is_answered(samples: Path, tmp_path: Path) -> None:
    files = sorted((samples / "admission" / "requests").glob("*.json"))
    assert len(files) > 100
    async with running(tmp_path) as world:
        seen = await answer_all(world, files, envelope=True)
        assert sum(seen.values()) == len(files)
        assert seen["refused"] > 0
        assert len(world.records()) == seen["allowed"] + seen["refused"]


async def test_every_public_review_is_answered(samples: Path, tmp_path: Path) -> None:
    files = sorted((samples / "admission" / "reviews").glob("*.json"))
    async with running(tmp_path) as world:
        seen = await answer_all(world, files, envelope=False)
    assert seen["no review"] >= 2, "Gatekeeper inputs are no reviews"
    assert sum(seen.values()) == len(files)
