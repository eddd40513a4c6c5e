"""A small valid estate as files, and helpers to break it in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy_engine.errors import ResourceErrors
from policy_engine.resources import parse

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "examples" / "estate"

PROFILE = """
  vlan: 10
  cipherSuite: GCM-AES-XPN-256
  lineRateGbps: 100
  rotateEvery: 24h
  prepareBefore: 30m
  jitter: 10m
  softAge: 25h
  hardAge: 48h
  stepDeadline: 10s
  revertAfter: 5s
  totalDeadline: 60s
  overlap: 1s
  pathDelay: 50ms
  reorderBound: 50ms
  arm: 2s
  ttl: 4s
  maxHold: 6s
"""


def doc(kind, name, spec):
    """One document; `spec` is indented by two."""
    return f"apiVersion: sluicegate.io/v1alpha1\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n{spec.strip(chr(10))}\n"


ESTATE = {
    "site-a.yaml": doc("Site", "a", '  provider: gcp\n  region: us-a\n  jurisdiction: "US"'),
    "site-b.yaml": doc("Site", "b", '  provider: aws\n  region: eu-b\n  jurisdiction: "NO"'),
    "cluster.yaml": doc(
        "Cluster",
        "c",
        "  sites: [a, b]\n  siteLabels: {site-a: a, site-b: b}\n  identity: {pathToken: true}\n  unbound: deny\n"
        "  platformNamespaces: [kube-system]",
    ),
    "tenant.yaml": doc("Tenant", "acme", '  displayName: Acme\n  jurisdictions: ["US", "NO"]'),
    "other.yaml": doc("Tenant", "globex", '  displayName: Globex\n  jurisdictions: ["US"]'),
    "binding.yaml": doc(
        "NamespaceBinding",
        "train",
        "  cluster: c\n  namespace: train\n  tenant: acme\n  regions: [us-a, eu-b]\n  datasets: [data]\n  segments: [part]",
    ),
    "profile.yaml": doc("LinkProfile", "fast", PROFILE),
    "link.yaml": doc(
        "Link",
        "ab",
        "  profile: fast\n  encryption: required\n  endpoints:\n"
        '    - {site: a, agent: ab-a, driver: software, sci: "02c0de0000010001"}\n'
        '    - {site: b, agent: ab-b, driver: software, sci: "02c0de0000020001"}',
    ),
    "dataset.yaml": doc("Dataset", "data", "  owner: acme\n  sites: [a]\n  regions: [us-a, eu-b]"),
    "segment.yaml": doc("Segment", "part", "  dataset: data\n  tenant: acme\n  site: b\n  cache: cache"),
    "flow.yaml": doc("Flow", "a-to-b", "  from: a\n  to: b\n  class: bulk\n  links: [ab]"),
}


def files(**changes):
    """The estate as bytes; a keyword replaces (or, with None, removes) `<keyword>.yaml`."""
    out = dict(ESTATE)
    for key, text in changes.items():
        name = key.replace("_", "-") + ".yaml"
        if text is None:
            del out[name]
        else:
            out[name] = text
    return {name: text.encode() if isinstance(text, str) else text for name, text in out.items()}


def swap(file, old, new):
    """The estate with one text replaced in one file."""
    name = f"{file}.yaml"
    assert old in ESTATE[name], (name, old)
    return files(**{file.replace("-", "_"): ESTATE[name].replace(old, new)})


def valid(**changes):
    """A valid set."""
    return parse(files(**changes))


def problems(given):
    """The problems of an invalid estate."""
    with pytest.raises(ResourceErrors) as caught:
        parse(given)
    return caught.value.problems


def only(given):
    """The one problem of an estate that is wrong in one place."""
    (problem,) = problems(given)
    return problem
