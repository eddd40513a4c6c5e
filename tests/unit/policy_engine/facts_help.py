"""Builders for tests of facts and context."""

from __future__ import annotations

from policy_engine.facts import NoLookup, facts, request_for


def pod(spec=None, **metadata):
    """A small valid Pod."""
    base = {"containers": [{"name": "main", "image": "ghcr.io/acme/x:1"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "acme-train", **metadata},
        "spec": {**base, **(spec or {})},
    }


def draw(obj, lookup=None, **request):
    """Facts of an object that is created."""
    asked = {**request_for(obj), **request} if isinstance(obj, dict) else request
    return facts(asked, lookup or NoLookup(), cluster="train-us")


def first(obj, lookup=None, **request):
    """The only pod of those facts."""
    (only,) = draw(obj, lookup, **request)["pods"]
    return only
