"""What volumes bring: claims, the volumes behind them, copies; what is not known is never silence."""

from __future__ import annotations

import pytest
from facts_help import draw, first, pod

from policy_engine.inventory.static import StaticLookup

SECRET = {"sluicegate.io/datasets": "secret"}


def claim(name, annotations=None, namespace="acme-train", **spec):
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": spec,
    }


def volume(name, annotations=None, attributes=None, **spec):
    source = {"csi": {"driver": "d", "volumeAttributes": attributes}} if attributes else {"nfs": {}}
    metadata = {"name": name, "annotations": annotations or {}}
    return {"kind": "PersistentVolume", "metadata": metadata, "spec": {**source, **spec}}


def mounts(name):
    return pod({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]})


def ephemeral(spec, annotations=None):
    template = {"metadata": {"annotations": annotations or {}}, "spec": spec}
    return pod({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]})


def of(kind, name, **more):
    return {"kind": kind, "name": name, **more}


BOUND = [claim("data", volumeName="pv"), volume("pv", attributes=SECRET)]


def names(obj, objects):
    return [d["name"] for d in first(obj, StaticLookup(objects))["datasets"]]


def missing(obj, objects):
    return [(u["what"], u["name"]) for u in draw(obj, StaticLookup(objects))["unresolved"]]


@pytest.mark.parametrize(
    "objects",
    [
        BOUND,
        [claim("data", volumeName="pv"), volume("pv", SECRET)],  # a volume of another kind says it so
        [claim("data", dataSource=of("PersistentVolumeClaim", "first")), claim("first", SECRET)],
        [
            claim("data", {"sluicegate.io/datasets": "none"}, dataSource=of("PersistentVolumeClaim", "mid")),
            claim("mid", dataSourceRef=of("PersistentVolumeClaim", "first", namespace="other")),
            claim("first", namespace="other", volumeName="pv"),
            volume("pv", attributes=SECRET),
        ],
    ],
)
def test_a_claim_brings_what_stands_behind_it(objects):
    assert ["secret"] == names(mounts("data"), objects)
    assert [] == missing(mounts("data"), objects)


@pytest.mark.parametrize(
    ("spec", "objects"),
    [
        ({"volumeName": "pv"}, [volume("pv", attributes=SECRET)]),
        ({"volumeName": "pv"}, [volume("pv", SECRET)]),
        ({"dataSource": of("PersistentVolumeClaim", "data")}, BOUND),
        ({"dataSourceRef": of("PersistentVolumeClaim", "data", namespace="acme-train")}, BOUND),
    ],
)
def test_a_claim_template_brings_what_it_names(spec, objects):
    assert ["secret"] == names(ephemeral(spec), objects)
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "acme-train"},
        "spec": {"template": {"spec": pod()["spec"]}, "volumeClaimTemplates": [{"spec": spec}]},
    }
    assert ["secret"] == names(stateful, objects)


@pytest.mark.parametrize(
    ("obj", "objects", "want"),
    [
        (mounts("data"), [claim("data", volumeName="pv")], ("PersistentVolume", "pv")),
        (mounts("data"), [claim("data", dataSource=of("VolumeSnapshot", "s"))], ("VolumeSnapshot", "s")),
        (
            mounts("data"),
            [claim("data", dataSource=of("PersistentVolumeClaim", "gone"))],
            ("PersistentVolumeClaim", "gone"),
        ),
        (ephemeral({"volumeName": "pv"}), [], ("PersistentVolume", "pv")),
        (ephemeral({"dataSource": of("VolumeSnapshot", "s")}), [], ("VolumeSnapshot", "s")),
        (ephemeral({"dataSourceRef": of({}, 7)}), [], ("", "")),
    ],
)
def test_what_is_not_known_is_unresolved(obj, objects, want):
    assert [want] == missing(obj, objects)


def test_a_copy_of_something_unknown_may_be_declared_itself():
    declared = {"sluicegate.io/datasets": "none"}
    source = of("VolumeSnapshot", "s")
    assert [] == missing(mounts("data"), [claim("data", declared, dataSource=source)])
    assert [] == missing(ephemeral({"dataSource": source}, declared), [])


def test_copies_in_a_circle_end():
    objects = [
        claim("a", dataSource=of("PersistentVolumeClaim", "b")),
        claim("b", SECRET, dataSource=of("PersistentVolumeClaim", "a")),
    ]
    assert {"secret"} == set(names(mounts("a"), objects))
