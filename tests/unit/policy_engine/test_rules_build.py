"""Building the bundle by real OPA: what must be refused, and that the bytes do not vary."""

from __future__ import annotations

import shutil

import pytest
import yaml
from rules_world import CONTAINER, REGO, shipped

from policy_engine.errors import BuildRefused
from policy_engine.rules import build, capabilities, cases

pytestmark = pytest.mark.slow
MINIMAL = """package sluicegate.{pack}

# METADATA
# title: A rule
# custom:
#   id: {pack}.rule
#   text: text
#   fix: change it
#   severity: high
#   controls: ["X:1"]
#   exceptable: false
#   unresolved: deny
#   needs: []
violations contains {{"rule": "{pack}.rule", "subject": "s", "path": "p", "params": {{}}}} if {{
	{condition}
}}
"""


@pytest.fixture
def rego(tmp_path):
    """A copy of the packs to change."""
    return shutil.copytree(REGO, tmp_path / "elsewhere" / "rego")


def extra(rego, condition, pack="extra"):
    (rego / pack).mkdir(exist_ok=True)
    (rego / pack / f"{pack}.rego").write_text(MINIMAL.format(pack=pack, condition=condition))


def edited(rego, name, old, new):
    file = rego / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_another_folder_gives_the_committed_bytes(rego):
    built = build.build(rego, shipped().version)
    assert CONTAINER.read_bytes() == built.container
    assert shipped().bundle_digest == built.about["bundle_digest"]


def test_the_version_is_in_the_bytes(rego):
    one, two = build.build(rego, 1), build.build(rego, 2)
    assert one.container != two.container
    assert one.about["policy_digest"] == two.about["policy_digest"]


def test_a_comment_changes_the_policy_digest(rego):
    """METADATA is comments: text and severity are part of the policy."""
    edited(rego, "tenancy/tenancy.rego", "severity: medium", "severity: advice")
    assert shipped().policy_digest != build.build(rego, 1).about["policy_digest"]


def test_capabilities_are_what_opa_says():
    assert (REGO / "capabilities.json").read_bytes() == capabilities.generate()


def test_a_wrong_expectation_is_refused(rego):
    file = rego / "tenancy" / "cases" / "jurisdiction.yaml"
    listed = yaml.safe_load(file.read_text())
    listed[0]["want"] = []
    file.write_text(yaml.safe_dump(listed))
    with pytest.raises(BuildRefused, match="a_landing_site_under_a_foreign_jurisdiction"):
        build.build(rego, 1)


@pytest.mark.parametrize(
    "call",
    [
        "time.now_ns() > 0",
        'http.send({"method": "get", "url": "http://x"})',
        'rand.intn("x", 2) == 1',
        'uuid.rfc4122("x") != ""',
        "opa.runtime().env",
        'sprintf("%d", [1]) == "1"',
        'semver.compare("1.0.0", "1.0.0") == 0',
        'print("x")',
    ],
)
def test_builtins_outside_the_capabilities_are_refused(rego, call):
    extra(rego, call)
    with pytest.raises(BuildRefused, match=r"undefined function|opa check failed"):
        build.build(rego, 1)


def test_a_rule_that_no_case_breaks_is_refused(rego):
    extra(rego, "input.never")
    with pytest.raises(BuildRefused, match=r"no case breaks extra\.rule"):
        build.build(rego, 1)


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        pytest.param(
            "tenancy/tenancy.rego",
            "#   id: tenancy.undeclared\n",
            "#   id: tenancy.renamed\n",
            r"tenancy\.undeclared|tenancy\.renamed",
            id="a rule without METADATA",
        ),
        pytest.param(
            "tenancy/tenancy.rego",
            "id: tenancy.undeclared",
            "id: tenancy.segment",
            r"same custom\.id",
            id="two rules of one id",
        ),
        pytest.param(
            "tenancy/tenancy.rego",
            'dataset "{name}" is not',
            'dataset "{nome}" is not',
            "nome",
            id="a text that names an absent param",
        ),
        pytest.param("lib/lib.rego", "bound if input", "bound  if  input", "fmt", id="not formatted"),
        pytest.param(
            "lib/lib.rego",
            "package sluicegate.lib\n",
            "package sluicegate.lib\n\nimport data.sluicegate.tenancy\n",
            "unused|opa check failed",
            id="an unused import",
        ),
    ],
)
def test_sources_that_are_not_as_they_should_be_are_refused(rego, name, old, new, why):
    edited(rego, name, old, new)
    with pytest.raises(BuildRefused, match=why):
        build.build(rego, 1)


def test_notes_must_be_unique(rego):
    file = rego / "tenancy" / "cases" / "jurisdiction.yaml"
    listed = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump([*listed, listed[0]]))
    with pytest.raises(BuildRefused, match="repeat"):
        cases.load(rego)


def test_a_pointer_that_leads_nowhere_is_refused(rego):
    file = rego / "tenancy" / "cases" / "jurisdiction.yaml"
    file.write_text("- {note: x, input: {base: train, drop: [/facts/none]}, want: []}\n")
    with pytest.raises(BuildRefused, match="cannot be put together"):
        cases.load(rego)


@pytest.fixture
def known(monkeypatch):
    """Capabilities as committed: making them anew takes seconds, and has its own test."""
    monkeypatch.setattr(capabilities, "generate", (REGO / "capabilities.json").read_bytes)


@pytest.mark.usefixtures("known")
def test_check_demands_the_committed_bytes(monkeypatch, rego, tmp_path, capsys):
    monkeypatch.setattr(build, "REGO", rego)
    bundles = shutil.copytree(build.BUNDLES, tmp_path / "bundles")
    monkeypatch.setattr(build, "BUNDLES", bundles)
    assert build.main(["--check"]) == 0
    edited(rego, "tenancy/tenancy.rego", "severity: medium", "severity: high")
    assert build.main(["--check"]) == 1
    assert "make rego" in capsys.readouterr().err


@pytest.mark.usefixtures("known")
def test_the_version_grows_only_with_a_change(monkeypatch, rego, tmp_path):
    bundles = shutil.copytree(build.BUNDLES, tmp_path / "bundles")
    monkeypatch.setattr(build, "REGO", rego)
    monkeypatch.setattr(build, "BUNDLES", bundles)
    build.main([])
    assert CONTAINER.read_bytes() == (bundles / CONTAINER.name).read_bytes()
    edited(rego, "tenancy/tenancy.rego", "severity: medium", "severity: high")
    build.main([])
    assert shipped().version + 1 == build._committed()["version"]
