"""Structural search: pods and images of kinds whose schema nobody told us."""

from __future__ import annotations

import time

import pytest
from facts_help import draw, pod

from policy_engine.facts import NoLookup
from policy_engine.limits import LIMITS

SPEC = pod()["spec"]


def custom(kind="Thing", **spec):
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "t"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (
            {"replicatedJobs": [{"template": {"spec": {"template": {"spec": SPEC}}}}]},
            "spec.replicatedJobs[0].template.spec.template.spec",
        ),
        (
            {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": SPEC}}}},
            "spec.pytorchReplicaSpecs.Worker.template.spec",
        ),
        (
            {"leaderWorkerTemplate": {"workerTemplate": {"spec": SPEC}}},
            "spec.leaderWorkerTemplate.workerTemplate.spec",
        ),
        ({"tasks": [{"template": {"spec": SPEC}}]}, "spec.tasks[0].template.spec"),
        (
            {"components": [{"template": {"kind": "LWS", "spec": {"x": {"y": [[{"spec": SPEC}]]}}}}]},
            "spec.components[0].template.spec.x.y[0][0].spec",
        ),
    ],
)
def test_a_pod_spec_is_found_at_any_depth(spec, path):
    found = draw(custom(**spec))
    assert [path] == [p["path"] for p in found["pods"]]
    assert ["ghcr.io/acme/x:1"] == found["images"]


def jobs(*items):
    return custom(jobs=[{**item, "template": {"spec": SPEC}} for item in items])


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ([{"name": "a"}, {"name": "b"}], ["spec.jobs[a].template.spec", "spec.jobs[b].template.spec"]),
        ([{"name": "b"}, {"name": "a"}], ["spec.jobs[b].template.spec", "spec.jobs[a].template.spec"]),
        ([{"name": "a"}, {"name": "a"}], ["spec.jobs[#0].template.spec", "spec.jobs[#1].template.spec"]),
        ([{"name": "#1"}, {}], ["spec.jobs[#0].template.spec", "spec.jobs[#1].template.spec"]),
        ([{"name": 7}, {"name": "0"}], ["spec.jobs[#0].template.spec", "spec.jobs[0].template.spec"]),
    ],
)
def test_a_pod_has_a_name_that_outlives_another_order(items, names):
    found = draw(jobs(*items))["pods"]
    assert names == [p["name"] for p in found]
    assert ["spec.jobs[0].template.spec", "spec.jobs[1].template.spec"] == [p["path"] for p in found]


def test_an_image_that_a_field_names_has_such_a_name_too():
    found = draw(custom(sets=[{"name": "x", "slurmd": {"image": "a/b:1"}}]))["pods"]
    assert ["spec.sets[x].slurmd"] == [p["name"] for p in found]


def test_keys_cannot_forge_lines_and_long_ones_are_told_apart():
    odd = "a\n[rule]\x1b[31m\u202e\ud800"
    (found,) = draw(custom(**{odd: {"containers": SPEC["containers"]}}))["pods"]
    assert f"{found['path']}{found['name']}".isprintable()
    assert found["path"].startswith("spec.a\\n[rule]\\x1b[31m")
    long = {"k" * 200 + end: {"containers": SPEC["containers"]} for end in "ab"}
    assert 2 == len({p["name"] for p in draw(custom(**long))["pods"]})


def test_names_of_many_items_are_counted_once():
    started = time.perf_counter()
    others = [{"name": f"n{i}"} for i in range(50_000)]
    mine = [{"name": f"p{i}", "template": {"spec": SPEC}} for i in range(1_999)]
    found = draw(custom(jobs=others + mine))
    assert "spec.jobs[p1998].template.spec" == found["pods"][-1]["name"]
    assert time.perf_counter() - started < 10


def test_an_object_of_too_many_pods_is_refused_at_once():
    found = draw(jobs(*({} for _ in range(3 * LIMITS.pods))))
    assert [f"the object has more than {LIMITS.pods} pods"] == [u["why"] for u in found["unreadable"]]
    assert LIMITS.pods + 1 == len(found["pods"])


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"metadata": {"podSpec": SPEC}}, "spec.metadata.podSpec"),
        ({"metadata": SPEC}, "spec.metadata"),
        ({"metadata": {"image": "ghcr.io/acme/x:1"}}, "spec.metadata"),
        ({"status": {"spec": SPEC}}, "spec.status.spec"),
    ],
)
def test_no_name_of_a_field_hides_a_pod_spec(spec, path):
    found = draw(custom(**spec))
    assert [path] == [p["path"] for p in found["pods"]]
    assert ["ghcr.io/acme/x:1"] == found["images"]


def test_annotations_of_the_template_declare():
    template = {"metadata": {"annotations": {"sluicegate.io/datasets": "d"}}, "spec": SPEC}
    outer = {"metadata": {"annotations": {"sluicegate.io/datasets": "outer"}}, "spec": {"template": template}}
    found = draw(custom(replicatedJobs=[{"template": outer}]))
    assert ["d"] == [d["name"] for d in found["pods"][0]["datasets"]]


def test_named_container_fields_are_pods_of_their_own():
    found = draw(
        custom(
            "NodeSet",
            slurmd={
                "image": "ghcr.io/slinky/slurmd:25",
                "env": [{"name": "S3_ENDPOINT", "value": "http://a.b"}],
            },
            template={"spec": {"containers": [{"name": "side", "image": "side:1"}]}},
        )
    )
    assert ["ghcr.io/slinky/slurmd:25", "side:1"] == found["images"]
    slurmd = next(p for p in found["pods"] if p["path"] == "spec.slurmd")
    assert ("slurmd", "field") == (slurmd["images"][0]["container"], slurmd["images"][0]["role"])
    assert 1 == len(slurmd["endpoints"])


def test_a_train_job_names_its_trainer_and_its_runtime():
    obj = custom("TrainJob", runtimeRef={"name": "torch"}, trainer={"image": "python:3.11-slim"})
    found = draw(obj)
    assert ["python:3.11-slim"] == found["images"]
    expected = [{"what": "ClusterTrainingRuntime", "name": "torch", "path": "spec.runtimeRef"}]
    assert expected == found["unresolved"]


def test_a_known_runtime_is_searched_too():
    class Runtimes(NoLookup):
        def training_runtime(self, kind, namespace, name):
            return custom(kind, template={"spec": {"template": {"spec": SPEC}}}, runtimeRef={"name": "loop"})

    found = draw(custom("TrainJob", runtimeRef={"name": "torch"}), Runtimes())
    assert ["ghcr.io/acme/x:1"] == found["images"]
    assert "spec.runtimeRef->spec.template.spec.template.spec" == found["pods"][0]["path"]
    assert [] == found["unresolved"]


@pytest.mark.parametrize(
    ("spec", "ref"),
    [
        (
            {"repository": "nvcr.io/nvidia", "image": "driver", "version": "550.1"},
            "nvcr.io/nvidia/driver:550.1",
        ),
        (
            {"repository": "nvcr.io/nvidia", "image": "driver", "version": "sha256:" + "a" * 64},
            "nvcr.io/nvidia/driver@sha256:" + "a" * 64,
        ),
        ({"repository": "nvcr.io/nvidia", "image": "driver"}, "nvcr.io/nvidia/driver"),
        ({"image": {"registry": "ghcr.io", "repository": "a/b", "tag": "1"}}, "ghcr.io/a/b:1"),
        (
            {"image": {"repository": "a/b", "digest": "sha256:" + "a" * 64, "tag": "1"}},
            "a/b@sha256:" + "a" * 64,
        ),
        ({"image": "spark:4.0.0"}, "spark:4.0.0"),
        ({"sidecarImage": "a/b:1"}, "a/b:1"),
    ],
)
def test_a_reference_in_parts_is_one_reference(spec, ref):
    assert [ref] == draw(custom(**spec))["images"]


@pytest.mark.parametrize(
    "spec",
    [
        {"image": "https://example.com/logo.png"},
        {"image": {"type": "string"}},
        {"image": 7},
        {"bootImage": "plain"},
        {"containers": ["a", "b"]},
        {"containers": {"type": "array"}},
    ],
)
def test_what_only_sounds_like_an_image_is_none(spec):
    found = draw(custom(**spec))
    assert ([], []) == (found["images"], found["unreadable"])


def test_a_manifest_in_a_string_is_flagged():
    text = "kind: Job\nspec:\n  containers:\n  - name: x\n    image: 'a/b:1' # why\n  - image: {{ tpl }}\n"
    found = draw(custom(manifest=text))
    assert [{"path": "spec.manifest", "images": ["a/b:1", "{{ tpl }}"]}] == found["embedded"]
    assert ["a/b:1", "{{ tpl }}"] == found["images"]


def test_a_config_map_with_a_manifest_runs_nothing_but_is_flagged():
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"pod": '{"kind":"Pod","image": "a/b:1"}'},
    }
    found = draw(obj)
    assert [{"path": "data.pod", "images": ["a/b:1"]}] == found["embedded"]
    assert [] == found["images"]


def test_a_manifest_in_an_annotation_is_flagged_but_not_what_kubectl_keeps():
    text = '{"kind":"Pod","spec":{"containers":[{"image":"a/b:1"}]}}'
    annotations = {"x/template": text, "kubectl.kubernetes.io/last-applied-configuration": text}
    found = draw(pod(annotations=annotations))
    assert ["metadata.annotations[x/template]"] == [e["path"] for e in found["embedded"]]


def test_buckets_say_where_they_are_and_how_they_are_reached():
    found = draw(
        custom(
            "Bucket",
            endpoint="minio.example.com",
            bucketName="b",
            region="eu-west-1",
            insecure=True,
            provider="generic",
        )
    )
    expected = {
        "path": "spec",
        "name": "spec",
        "provider": "generic",
        "bucket": "b",
        "scheme": "",
        "host": "minio.example.com",
        "region": "eu-west-1",
        "insecure": True,
    }
    assert [expected] == found["stores"]


def test_status_and_managed_fields_are_not_searched():
    obj = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "managedFields": [{"image": "no:1"}]},
        "status": {"images": [{"image": "no:1"}]},
    }
    assert [] == draw(obj)["images"]


def test_a_hundred_thousand_levels_are_said_not_survived_by_luck():
    node = {"image": "deep:1"}
    for _ in range(100_000):
        node = {"x": node}
    found = draw(custom(top=node))
    assert "nested too deeply" in found["unreadable"][0]["why"]
    while "x" in node:  # taken apart by hand: the interpreter's own teardown recurses
        node = node.pop("x")


def test_a_hostile_key_costs_nothing():
    node = {"x" * 1_000_000: {f"k{i}": {"image": "a@b"} if i == 7 else 1 for i in range(50_000)}}
    started = time.process_time()
    found = draw(custom(top=node))
    assert time.process_time() - started < 2
    assert all(len(u["path"]) <= LIMITS.path_chars for u in found["unreadable"])
    assert ["a@b"] == found["images"]


def test_only_so_many_notes_are_kept():
    found = draw(custom(all=[{"image": "a@b"} for _ in range(1000)]))
    assert LIMITS.notes_kept == len(found["unreadable"])


def test_a_known_kind_of_another_group_is_searched():
    obj = {"apiVersion": "example.com/v1", "kind": "Deployment", "spec": {"inner": {"spec": SPEC}}}
    assert ["spec.inner.spec"] == [p["path"] for p in draw(obj)["pods"]]
