"""The mix of reviews of bench/admission.py: Pods and Jobs of about 4.8 kB, as an API server sends them."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

SITE = "node-restriction.kubernetes.io/sluicegate-site"
DATASETS, SEGMENTS = "sluicegate.io/datasets", "sluicegate.io/segments"

# (share, namespace, kind, annotations, site or None, scheme of the tracking server, what should happen)
CASES: list[tuple[int, str, str, dict[str, str], str | None, str, str]] = [
    (5, "acme-train", "Job", {DATASETS: "us-corpus"}, "gcp-us-central", "https", "allow: local read"),
    (5, "acme-train", "Job", {DATASETS: "us-corpus"}, "cw-us-east", "https", "allow: over an encrypted link"),
    (5, "acme-train", "Pod", {SEGMENTS: "acme-tokens"}, "cw-us-east", "https", "allow: cached segment"),
    (4, "globex-train", "Pod", {DATASETS: "none"}, None, "https", "allow: reads nothing, lands anywhere"),
    (
        3,
        "globex-train",
        "Job",
        {SEGMENTS: "globex-images"},
        "cw-us-east",
        "https",
        "allow: segment over a link",
    ),
    (2, "acme-train", "Job", {DATASETS: "eu-patients"}, "cw-us-east", "https", "deny: outside its region"),
    (
        2,
        "acme-train",
        "Pod",
        {SEGMENTS: "globex-images"},
        "gcp-us-central",
        "https",
        "deny: another tenant's",
    ),
    (2, "globex-train", "Pod", {}, "cw-us-east", "https", "deny: declares nothing"),
    (1, "acme-train", "Job", {DATASETS: "us-corpus"}, "gcp-us-central", "http", "deny: clear endpoint"),
    (1, "acme-train", "Job", {DATASETS: "us-corpus"}, "aws-eu-west", "https", "deny: no such site here"),
]


def reviews(count: int, seed: int = 7) -> list[tuple[bytes, str]]:
    """`count` different reviews in a mixed order, each with what should happen."""
    rng = random.Random(seed)
    deck = [case for case in CASES for _ in range(case[0])]
    out = []
    for number in range(count):
        case = deck[number % len(deck)]
        out.append((json.dumps(review(rng, number, case), separators=(",", ":")).encode(), case[6]))
    rng.shuffle(out)
    return out


def review(rng: random.Random, number: int, case: tuple[Any, ...]) -> dict[str, Any]:
    """One AdmissionReview."""
    _, namespace, kind, annotations, site, scheme, _ = case
    name = f"train-{number:05d}-{rng.randrange(16**5):05x}"
    group, version = ("batch", "v1") if kind == "Job" else ("", "v1")
    plural = kind.lower() + "s"
    user = f"system:serviceaccount:{namespace}:launcher"
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": plural},
            "requestKind": {"group": group, "version": version, "kind": kind},
            "requestResource": {"group": group, "version": version, "resource": plural},
            "name": name,
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {
                "username": user,
                "uid": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
                "groups": [
                    "system:serviceaccounts",
                    f"system:serviceaccounts:{namespace}",
                    "system:authenticated",
                ],
            },
            "object": manifest(rng, name, namespace, kind, annotations, site, scheme),
            "oldObject": None,
            "dryRun": False,
            "options": {
                "kind": "CreateOptions",
                "apiVersion": "meta.k8s.io/v1",
                "fieldManager": "kubectl-create",
            },
        },
    }


def manifest(  # noqa: PLR0917
    rng: random.Random,
    name: str,
    namespace: str,
    kind: str,
    annotations: dict[str, str],
    site: str | None,
    scheme: str,
) -> dict[str, Any]:
    """A Pod, or a Job around the same pod template."""
    labels = {"app": "train", "team": namespace, "run": name, "app.kubernetes.io/managed-by": "launcher"}
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "creationTimestamp": "2026-11-20T08:15:30Z",
    }
    spec = pod_spec(rng, site, scheme)
    if kind == "Pod":
        return {
            "kind": kind,
            "apiVersion": "v1",
            "metadata": {**meta, "annotations": annotations, "managedFields": managed(spec, "f:spec")},
            "spec": spec,
            "status": {"phase": "Pending", "qosClass": "Burstable"},
        }
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    return {
        "kind": kind,
        "apiVersion": "batch/v1",
        "metadata": {**meta, "managedFields": managed(spec, "f:template")},
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "backoffLimit": 3,
            "completionMode": "Indexed",
            "suspend": False,
            "template": template,
        },
        "status": {},
    }


def pod_spec(rng: random.Random, site: str | None, scheme: str) -> dict[str, Any]:
    """A PodSpec of a trainer with a fetching init container and a metrics sidecar, defaults filled in."""
    digest = f"{rng.getrandbits(256):064x}"
    main = container("trainer", f"registry.example.com/ml/trainer@sha256:{digest}", scheme)
    main["resources"] = {
        "limits": {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"},
        "requests": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
    }
    spec: dict[str, Any] = {
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "200Gi"}},
            {"name": "config", "configMap": {"name": "train-config", "defaultMode": 420}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
        ],
        "initContainers": [container("fetch", "registry.example.com/ml/fetch:2.4.1", "https")],
        "containers": [main, container("metrics", "registry.example.com/obs/otel-agent:1.20.0", "https")],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "trainer",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "fsGroup": 2000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "schedulerName": "default-scheduler",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "training",
    }
    if site is not None and rng.random() < 0.5:
        spec["nodeSelector"] = {SITE: site, "accelerator": "h200"}
    elif site is not None:
        terms = [{"matchExpressions": [{"key": SITE, "operator": "In", "values": [site]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return spec


def container(name: str, image: str, scheme: str) -> dict[str, Any]:
    """One container with the variables and defaults that a real one carries."""
    env = [
        {"name": key, "value": value}
        for key, value in (
            ("MLFLOW_TRACKING_URI", f"{scheme}://mlflow.example.com"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://otel.example.com:4318"),
            ("NCCL_DEBUG", "INFO"),
        )
    ]
    env.append(
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
    )
    return {
        "name": name,
        "image": image,
        "args": ["--config", "/etc/train/config.yaml", "--checkpoint-every", "500"],
        "env": env,
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "config", "mountPath": "/etc/train", "readOnly": True},
        ],
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False},
    }


def managed(spec: dict[str, Any], root: str) -> list[dict[str, Any]]:
    """What the API server keeps about who set which field."""
    fields = {f"f:{key}": {} for key in spec if key not in ("containers", "initContainers", "volumes")}
    for item in spec["containers"]:
        fields[f'k:{{"name":"{item["name"]}"}}'] = {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}
    entry = {
        "manager": "kubectl-create",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-20T08:15:30Z",
    }
    return [{**entry, "fieldsType": "FieldsV1", "fieldsV1": {root: fields}}]
