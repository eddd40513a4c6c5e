"""The commands: exit codes, text, JSON, and no traceback for any input."""

from __future__ import annotations

import json

import pytest
from estates import ESTATE, EXAMPLE
from typer.testing import CliRunner

from policy_engine.resources.cli import app

OBJECTS = EXAMPLE.parent / "objects"
REVIEWS = EXAMPLE.parent / "reviews"


def run(*args, stdin=None):
    result = CliRunner().invoke(app, [str(a) for a in args], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def decide(*args):
    result = run("check", EXAMPLE, *args, "-o", "json")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def estate(tmp_path):
    for name, text in ESTATE.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_valid_directory():
    result = run("check", EXAMPLE)
    assert 0 == result.exit_code
    assert result.stdout.startswith("ok: 26 objects")
    answer = json.loads(run("check", EXAMPLE, "-o", "json").stdout)
    assert ([], True, 26) == (answer["problems"], answer["ok"], answer["objects"])


def test_an_invalid_directory_says_everything(estate):
    (estate / "site-a.yaml").write_text(ESTATE["site-a.yaml"].replace("region", "regin"))
    (estate / "x.yaml").write_text("a: no\n")
    result = run("check", estate)
    assert 1 == result.exit_code
    assert 'site-a.yaml:7: spec.regin: unknown field "regin" (did you mean "region"?)' in result.stderr
    assert "x.yaml:1" in result.stderr
    answer = json.loads(run("check", estate, "-o", "json").stdout)
    assert answer["ok"] is False
    assert {"file", "line", "path", "message", "fix"} == set(answer["problems"][0])


@pytest.mark.parametrize(
    "args",
    [
        ("check",),
        ("check", "/nonexistent"),
        ("check", EXAMPLE, "--nonsense"),
        ("check", EXAMPLE, "-o", "xml"),
        ("check", EXAMPLE, "--cluster", "train-us"),
        ("check", EXAMPLE, "--objects", "/nonexistent"),
        ("check", EXAMPLE, "--objects", OBJECTS / "training-job.yaml", "--cluster", "train-uss"),
        ("diff", EXAMPLE),
        ("diff", EXAMPLE, "/nonexistent"),
        ("facts", "/nonexistent"),
        ("facts", OBJECTS),
    ],
)
def test_wrong_usage(args):
    assert 2 == run(*args).exit_code


def test_a_cluster_with_a_typo_gets_the_nearest_name():
    result = run("check", EXAMPLE, "--objects", OBJECTS / "training-job.yaml", "--cluster", "train-uss")
    assert 'did you mean "train-us"?' in result.stderr


def test_the_compliant_job_is_allowed():
    code, report = decide("--objects", OBJECTS / "training-job.yaml")
    assert (0, 0) == (code, report["denied"])
    assert [("train-us", True, [])] == [
        (d["cluster"], d["allowed"], d["reasons"]) for d in report["decisions"]
    ]
    text = run("check", EXAMPLE, "--objects", OBJECTS / "training-job.yaml").stdout
    assert "1 allowed, 0 denied; links assumed encrypted" in text


def test_the_refused_jobs_are_refused_each_by_its_rule():
    code, report = decide("--objects", OBJECTS / "refused.yaml")
    assert 1 == code
    rules = [[r["rule"] for r in d["reasons"]] for d in report["decisions"]]
    assert [["residency.region"], ["tenancy.segment"], ["encryption.link"]] == rules
    assert all(r["text"] and r["fix"] and r["path"] for d in report["decisions"] for r in d["reasons"])
    text = run("check", EXAMPLE, "--objects", OBJECTS / "refused.yaml").stdout
    assert "field: spec.template.metadata.annotations[sluicegate.io/datasets]" in text


@pytest.mark.parametrize(
    ("name", "cluster", "rules"),
    [
        ("compliant", "train-us", []),
        ("region", "train-us", ["residency.region"]),
        ("tenant-segment", "train-us", ["tenancy.segment"]),
        ("unencrypted-flow", "train-eu", ["encryption.link"]),
    ],
)
def test_the_example_reviews(name, cluster, rules):
    _, report = decide("--objects", REVIEWS / f"{name}.json", "--cluster", cluster)
    assert [rules] == [[r["rule"] for r in d["reasons"]] for d in report["decisions"]]


def test_links_taken_as_unknown_refuse():
    code, report = decide("--objects", OBJECTS / "training-job.yaml", "--links", "unknown")
    assert 1 == code
    assert ["encryption.gate"] == sorted({r["rule"] for d in report["decisions"] for r in d["reasons"]})


def test_a_namespace_in_no_cluster_needs_to_be_told_which():
    pod = '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"b"}]}}'
    result = run("check", EXAMPLE, "--objects", "-", stdin=pod)
    assert 2 == result.exit_code
    assert "--cluster" in result.stderr
    refused = run("check", EXAMPLE, "--objects", "-", "--cluster", "train-us", "-o", "json", stdin=pod)
    assert ["unbound"] == [r["rule"] for r in json.loads(refused.stdout)["decisions"][0]["reasons"]]


def test_an_update_is_judged_on_what_is_new():
    request = json.loads((REVIEWS / "region.json").read_text())["request"]
    request.update(operation="UPDATE", oldObject=request["object"])
    result = run(
        "check", EXAMPLE, "--objects", "-", "--cluster", "train-us", "-o", "json", stdin=json.dumps(request)
    )
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision["allowed"] is True
    assert ["residency.region"] == [w["rule"] for w in decision["warnings"]]


def test_what_a_terminal_would_obey_is_only_shown(estate):
    (estate / "site-a.yaml").write_text(ESTATE["site-a.yaml"].replace("gcp", '"\\e[31mred\\a"'))
    result = run("check", estate)
    assert "\x1b" not in result.stderr
    assert "\\x1b[31mred\\x07" in result.stderr


def test_diff_of_directories(estate, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for name, text in ESTATE.items():
        (other / name).write_text(text.replace("sites: [a]", "sites: [a, b]"))
    assert "no change\n" == run("diff", estate, estate).stdout
    result = run("diff", estate, other)
    assert (0, True) == (result.exit_code, "WIDENING" in result.stdout)
    assert 1 == run("diff", estate, other, "--fail-on-widening").exit_code
    answer = json.loads(run("diff", estate, other, "-o", "json").stdout)
    assert ["Dataset"] == [c["kind"] for c in answer["changes"]]
    (other / "x.yaml").write_text("a: [")
    assert 1 == run("diff", estate, other).exit_code


def test_facts_prints_a_line_for_each_object():
    result = run("facts", OBJECTS / "refused.yaml")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert 3 == len(documents)
    assert all(d["images"] == sorted(set(d["images"])) for d in documents)


def test_facts_takes_lists_reviews_and_requests():
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "image": "x"}]},
    }
    request = {"operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod}
    for document in (
        {"apiVersion": "v1", "kind": "List", "items": [pod]},
        {"apiVersion": "v1", "kind": "PodList", "items": [pod]},
        {"apiVersion": "v1", "kind": "PodList", "items": [{k: pod[k] for k in ("metadata", "spec")}]},
        {"kind": "AdmissionReview", "request": request},
        request,
        pod,
    ):
        result = run("facts", "-", stdin=json.dumps(document))
        assert ["x"] == json.loads(result.stdout)["images"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"kind": "Pod", "kind": "Job"}', "stands twice"),
        ("kind: Pod\nkind: Job\n", "line 2"),
        ('{"kind": ', "not JSON"),
        ('{"kind": NaN}', "no JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ("kind: " + "[" * 100_000, "nest"),
        ("kind: [", "not YAML"),
        ("just text", "not an object"),
        ("a: 1\n", "no kind"),
        ('{"kind": {"kind": "Pod"}, "object": {}}', "without an operation"),
        ("a: &a [*a]\nkind: Pod\n", "alias refers"),
        (b"\xff\xfe", "not UTF-8"),
        ("? [a]\n: 1\n", "not a name"),
        ('{"kind": "X", "a": 1e999}', "1e999 is out of range"),
        ("", "hold no object"),
        ("# nothing\n---\n", "hold no object"),
        ("kind: Pod\nmetadata:\n  name: 0123\n", 'line 3: metadata.name: a text is due here\n  fix: put it in quotes: "0123"'),
        ("kind: Pod\nmetadata: {name: p, namespace: 1_0}\n", 'line 2: metadata.namespace: a text is due here\n  fix: put it in quotes: "1_0"'),
        ("kind: Job\nmetadata: {generateName: yes}\n", 'metadata.generateName: a text is due here\n  fix: put it in quotes: "yes"'),
        ("kind: Job\nmetadata: {name: [a]}\n", "line 2: metadata.name: a text is due here"),
        ("kind: Job\nmetadata: x\n", "line 2: metadata: a map is due here"),
        ("kind: List\nitems:\n- kind: Pod\n  metadata: {name: p}\n- kind: Pod\n  metadata:\n    name: 1.0\n", "line 7: items[1].metadata.name: a text"),
        ("a: &n {name: 0x1f}\nkind: Pod\nmetadata: *n\n", 'line 1: metadata.name: a text is due here\n  fix: put it in quotes: "0x1f"'),
        ("kind: Pod\n---\nkind: Pod\nmetadata:\n  <<: {name: 7}\n", "document 1: metadata.name: a text is due here"),
        ('{"kind": "Pod", "metadata": {"name": 83}}', 'document 0: metadata.name: a text is due here\n  fix: put it in quotes: "83"'),
        (
            "kind: X\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
            + "\n".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)),
            "aliases",
        ),
        ("kind: X\na0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 900)), "aliases"),
    ],
)  # fmt: skip
def test_unreadable_objects_are_refused_in_one_line(data, message):
    for command in (("facts", "-"), ("check", EXAMPLE, "--cluster", "train-us", "--objects", "-")):
        result = run(*command, stdin=data)
        assert 1 == result.exit_code
        assert message in result.stderr
        assert "" == result.stdout


def test_manifests_are_read_as_kubernetes_tools_read_them():
    text = """
base: &base {image: "a/b:1"}
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {x: on}}
spec:
  hostNetwork: yes
  containers:
    - {<<: *base, name: 2026-01-01, resources: {limits: {nvidia.com/gpu: 010}}}
"""
    (pod,) = json.loads(run("facts", "-", stdin=text).stdout)["pods"]
    assert pod["hostNetwork"] is True
    assert ("2026-01-01", "a/b:1") == (pod["images"][0]["container"], pod["images"][0]["ref"])
    assert {"nvidia.com/gpu": 8} == pod["accelerators"]
