"""Declared state: kinds, loading with file and line, cross checks, and what a change means."""

from policy_engine.resources.load import load, parse
from policy_engine.resources.model import (
    KINDS,
    Cluster,
    Dataset,
    Endpoint,
    Flow,
    Identity,
    Link,
    LinkProfile,
    NamespaceBinding,
    Resource,
    Segment,
    Site,
    Tenant,
)
from policy_engine.resources.resource_set import ResourceSet, manifest, restore

__all__ = [
    "KINDS",
    "Cluster",
    "Dataset",
    "Endpoint",
    "Flow",
    "Identity",
    "Link",
    "LinkProfile",
    "NamespaceBinding",
    "Resource",
    "ResourceSet",
    "Segment",
    "Site",
    "Tenant",
    "load",
    "manifest",
    "parse",
    "restore",
]
