"""Building the shipped bundle: `python -m policy_engine.rules.build [--check]`.

In order, each a reason to stop:

1. ``capabilities.json`` is what OPA and the Wasm compiler say today (``--check``), or is written;
2. ``opa fmt --fail`` and ``opa check --strict`` within those capabilities;
3. the policy digest is computed and put in as a constant;
4. METADATA of every rule, as ``opa inspect -a`` reads it, is complete, and cases break every rule;
5. ``opa test``, the oracle, runs every shared case and the tests of helpers;
6. ``opa build -t wasm``, twice with equal bytes, asking nothing of a host;
7. the container is packed. ``--check`` demands the committed bytes; otherwise they are replaced, and
   the version grows by one if anything changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from policy_engine.errors import BuildRefused, PolicyEngineError
from policy_engine.rules import archive, capabilities, cases, opa, trust
from policy_engine.rules.bundle import FILE, GENERATED, constant, policy_digest
from policy_engine.rules.engine import ENTRYPOINT
from policy_engine.rules.metadata import RuleMeta, parse
from policy_engine.rules.wasm import required_builtins

ROOT: Final = Path(__file__).resolve().parents[2]
REGO: Final = ROOT / "rego"
BUNDLES: Final = Path(__file__).resolve().parent / "bundles"
_OWN_FIELDS: Final = frozenset({"subject", "path"})


@dataclass(frozen=True, slots=True)
class Built:
    """What a build gives: the container and what is said about it."""

    container: bytes
    about: dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Build or check; 0 done, 1 refused."""
    parser = argparse.ArgumentParser(prog="python -m policy_engine.rules.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="demand the committed bytes, change nothing")
    check = parser.parse_args(arguments).check
    try:
        _check_committed() if check else _write()
    except PolicyEngineError as error:
        print(f"error: {error}" + (f"\n  fix: {error.fix}" if error.fix else ""), file=sys.stderr)
        return 1
    return 0


def _write() -> None:
    (REGO / "capabilities.json").write_bytes(capabilities.generate())
    committed = _committed()
    version = committed.get("version", 0)
    built = build(REGO, max(version, 1))
    if committed and built.about != committed:
        built = build(REGO, version + 1)
    BUNDLES.mkdir(exist_ok=True)
    (BUNDLES / FILE).write_bytes(built.container)
    (BUNDLES / trust.FILE).write_bytes(_pretty(built.about))
    print(f"bundle {built.about['version']}: policy {built.about['policy_digest'][:16]}")


def _check_committed() -> None:
    if (REGO / "capabilities.json").read_bytes() != capabilities.generate():
        raise BuildRefused("rego/capabilities.json is not what OPA says", fix="run `make rego`")
    committed = _committed()
    if not committed:
        raise BuildRefused("no bundle is committed", fix="run `make rego`")
    built = build(REGO, committed["version"])
    same = built.container == (BUNDLES / FILE).read_bytes() and built.about == committed
    if not same:
        raise BuildRefused("the committed bundle is not what the sources build", fix="run `make rego`")
    print(f"bundle {built.about['version']} is what the sources build: {built.about['bundle_digest']}")


def _committed() -> dict[str, Any]:
    file = BUNDLES / trust.FILE
    about: dict[str, Any] = orjson.loads(file.read_bytes()) if file.exists() else {}
    return about


def build(rego: Path, version: int) -> Built:
    """Steps 2 to 7 on a folder of packs.

    Raises:
        BuildRefused: With the step that failed, in OPA's words where OPA refused.
        ToolchainError: OPA is missing.
    """
    bounds = rego / "capabilities.json"
    opa.run(["fmt", "--fail", "-l", str(rego)])
    sources = read_sources(rego)
    digest = policy_digest(sources, bounds.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder, "stage")
        _stage(stage, {**sources, GENERATED: constant(digest)})
        opa.run(["check", "--strict", "--capabilities", str(bounds), str(stage)])
        rules = _metadata(stage)
        _test(rego, stage, rules, digest)
        wasm = _compile(stage, bounds)
    about = {
        "opa": opa.VERSION,
        "policy_digest": digest,
        "rules": {rule: meta.as_dict() for rule, meta in sorted(rules.items())},
        "version": version,
    }
    manifest = {
        "revision": str(version),
        "roots": ["sluicegate"],
        "rego_version": 1,
        "metadata": about,
    }
    container = archive.pack(
        {
            **sources,
            GENERATED: constant(digest),
            "capabilities.json": bounds.read_bytes(),
            "policy.wasm": wasm,
            ".manifest": _pretty(manifest),
        }
    )
    return Built(container, {"bundle_digest": hashlib.sha256(container).hexdigest(), **about})


def read_sources(rego: Path) -> dict[str, bytes]:
    """Name -> bytes of every module but tests."""
    return {
        file.relative_to(rego).as_posix(): file.read_bytes()
        for file in sorted(rego.rglob("*.rego"))
        if not file.name.endswith("_test.rego")
    }


def _stage(stage: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        target = stage / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _metadata(stage: Path) -> dict[str, RuleMeta]:
    """METADATA of every rule that has an id, as OPA reads it from the sources."""
    found = opa.run_json(["inspect", "-a", "-f", "json", str(stage)]).get("annotations", [])
    metas = [parse(item["annotations"]) for item in found if "custom" in item["annotations"]]
    rules = {meta.rule: meta for meta in metas}
    if len(rules) != len(metas):
        raise BuildRefused("two rules have the same custom.id")
    return rules


def _test(rego: Path, stage: Path, rules: Mapping[str, RuleMeta], digest: str) -> None:
    shared = cases.load(rego)
    _cover(rules, shared)
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder)
        helpers = {file.relative_to(rego).as_posix(): file.read_bytes() for file in rego.rglob("*_test.rego")}
        _stage(tests, {**helpers, "generated/cases_test.rego": _cases_test(shared, digest)})
        document = {str(number): _document(case) for number, case in enumerate(shared)}
        _stage(tests, {"cases/data.json": orjson.dumps(document)})
        opa.run(["test", "--timeout", "60s", str(stage), str(tests)])


def _cover(rules: Mapping[str, RuleMeta], shared: Iterable[cases.Case]) -> None:
    """Every rule is broken by a case, every broken rule has METADATA, every text finds its params."""
    seen: set[str] = set()
    for case in shared:
        for row in case.want or []:
            rule = row["rule"]
            if rule not in rules:
                raise BuildRefused(f"{case.name}: no rule has METADATA with the id {rule}")
            unknown = rules[rule].fields() - row["params"].keys() - _OWN_FIELDS
            if unknown:
                raise BuildRefused(f"{rule}: its text names params it does not give: {', '.join(unknown)}")
            seen.add(rule)
    if missing := rules.keys() - seen:
        raise BuildRefused(f"no case breaks {', '.join(sorted(missing))}")


def _document(case: cases.Case) -> dict[str, Any]:
    return {"input": orjson.loads(case.input.body), "want": case.want or []}


def _cases_test(shared: Iterable[cases.Case], digest: str) -> bytes:
    """One test a case, so that a failure is named by its note."""
    lines = ["package sluicegate.cases_test", "", "import data.sluicegate.main"]
    for number, case in enumerate(shared):
        slug = re.sub(r"[^a-z0-9]+", "_", case.name.lower()).strip("_")
        lines += ["", f"test_{number}_{slug} if {{", f'\tasked := data.cases["{number}"]']
        if case.want is None:
            lines.append("\tnot main.result with input as asked.input")
        else:
            lines += [
                "\tresult := main.result with input as asked.input",
                f'\tresult.policy_digest == "{digest}"',
                "\tresult.input_digest == asked.input.digest",
                "\tresult.violations == {row | some row in asked.want}",
            ]
        lines.append("}")
    return ("\n".join(lines) + "\n").encode("utf-8")


def _compile(stage: Path, bounds: Path) -> bytes:
    first, again = (opa.compile_wasm(stage, ENTRYPOINT, capabilities=bounds) for _ in range(2))
    if first != again:
        raise BuildRefused("opa build gave two different modules for the same sources")
    if asked := required_builtins(first):
        raise BuildRefused(f"the module asks its host for {', '.join(asked)}")
    return first


def _pretty(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


if __name__ == "__main__":
    sys.exit(main())
