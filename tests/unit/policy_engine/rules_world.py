"""What tests of rules and engines share: the shipped bundle, the cases, the example estate, odd inputs."""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from policy_engine.context import context
from policy_engine.errors import EngineNoResult
from policy_engine.facts import NoLookup, facts, request_for
from policy_engine.gate.posture import LinkPosture
from policy_engine.resources.load import load as load_resources
from policy_engine.rules import bundle, cases, opa
from policy_engine.rules.bundle import Bundle
from policy_engine.rules.engine import Engine, Result

ROOT = Path(__file__).resolve().parents[3]
REGO = ROOT / "rego"
CONTAINER = ROOT / "policy_engine" / "rules" / "bundles" / bundle.FILE
NOW = 1_790_000_000_000_000_000


@cache
def shipped() -> Bundle:
    return bundle.shipped()


@cache
def all_cases() -> list[cases.Case]:
    return cases.load(REGO)


def compiled(module: str, entrypoint: str = "t/result") -> Bundle:
    """The shipped bundle with another module in it, compiled by real OPA."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "t.rego").write_text(module, encoding="utf-8")
        return replace(shipped(), wasm=opa.compile_wasm(Path(folder), entrypoint))


def rows(result: Result) -> list[dict[str, Any]]:
    return [
        {"rule": row.rule, "subject": row.subject, "path": row.path, "params": dict(row.params)}
        for row in result.violations
    ]


def answer(engine: Engine, body: bytes, digest: str) -> list[dict[str, Any]] | None:
    """Violations, or None for no result."""
    try:
        return rows(engine.evaluate(body, digest))
    except EngineNoResult:
        return None


def unordered(found: list[dict[str, Any]] | None) -> list[str] | None:
    return None if found is None else sorted(json.dumps(row, sort_keys=True) for row in found)


def postures(
    state: str = "open", verdict: str = "encrypted", fresh_ns: int = 10**10
) -> dict[str, LinkPosture]:
    """Every link of the example estate but the one that is never keyed."""
    names = [name for name in estate().links if name != "gcp-aws-legacy"]
    reason = "encrypted" if verdict == "encrypted" else "encryption_off"
    return {
        name: LinkPosture("required", state, verdict, reason, NOW - 10**12, NOW + fresh_ns, 3)  # type: ignore[arg-type]
        for name in names
    }


@cache
def estate() -> Any:
    return load_resources(ROOT / "deploy" / "examples" / "estate")


def example_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every review and object that ships as an example, as requests."""
    for file in sorted((ROOT / "deploy" / "examples" / "reviews").glob("*.json")):
        yield file.stem, json.loads(file.read_text())["request"]
    for file in sorted((ROOT / "deploy" / "examples" / "objects").glob("*.yaml")):
        for number, manifest in enumerate(yaml.safe_load_all(file.read_text())):
            if manifest:
                yield f"{file.stem}-{number}", request_for(manifest)


def example_questions() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, facts, context) of every example in both clusters under several postures."""
    views = {
        "good": postures(),
        "closed": postures(state="closed"),
        "violation": postures(verdict="violation"),
        "stale": postures(fresh_ns=-1),
        "silent": {},
    }
    for name, request in example_requests():
        for cluster in ("train-us", "train-eu", "nowhere"):
            found = facts(request, NoLookup(), cluster=cluster)
            for view, given in views.items():
                yield f"{name} {cluster} {view}", found, context(found, estate(), given)


def sample_requests(samples: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every public request, and every public manifest as if it were created in a bound namespace."""
    for file in sorted((samples / "admission" / "requests").rglob("*.json")):
        document = json.loads(file.read_text())
        if isinstance(document, dict):
            yield file.name, {**document.get("request", document), "namespace": "acme-train"}
    for file in sorted((samples / "workloads").rglob("*.y*ml")):
        try:
            manifests = list(yaml.safe_load_all(file.read_text()))
        except yaml.YAMLError:  # templates with placeholders
            continue
        for number, manifest in enumerate(manifests):
            if isinstance(manifest, dict) and isinstance(manifest.get("metadata"), dict):
                manifest["metadata"]["namespace"] = "acme-train"
                yield f"{file.name}-{number}", request_for(manifest)


_ODD = (None, [], {}, "", 7, True, False, "x", ["x"], {"x": None}, -1, "granted", "open")


def mutated(source: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with one to three places dropped, repeated or replaced by something odd."""
    whole = copy.deepcopy(dict(source))
    for _ in range(rng.randint(1, 3)):
        parent: Any = whole[rng.choice(["facts", "context"])]
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(parent[key], dict | list) and rng.random() < 0.75:
                parent = parent[key]
                continue
            if rng.random() < 0.3:
                del parent[key]
            elif isinstance(parent, list) and rng.random() < 0.3:
                parent.append(copy.deepcopy(parent[key]))
            else:
                parent[key] = copy.deepcopy(rng.choice(_ODD))
            break
    return whole
