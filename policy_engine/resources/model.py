"""The kinds of declared state (apiVersion `sluicegate.io/v1alpha1`) and the frozen set that holds them.

Strict, frozen, unknown fields refused. In YAML an object is `{apiVersion, kind, metadata: {name}, spec}`;
here the name stands beside the fields of the spec. YAML keys are camelCase, durations are strings with a
unit; attributes end in `_ns` and hold nanoseconds. What one object cannot know alone (references, equal
SCIs, headroom of packet numbers) is in `checks.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from policy_engine.resources.values import (
    Country,
    DayEndNs,
    DurationNs,
    EtherType,
    LabelValue,
    Name,
    Region,
    Sci,
)

API_VERSION: Final = "sluicegate.io/v1alpha1"
SITE_LABEL: Final = "node-restriction.kubernetes.io/sluicegate-site"

CipherSuite: TypeAlias = Literal["GCM-AES-128", "GCM-AES-256", "GCM-AES-XPN-128", "GCM-AES-XPN-256"]
Names: TypeAlias = tuple[Name, ...]
Some = Field(min_length=1)


class _Strict(BaseModel):
    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        alias_generator=lambda n: to_camel(n.removesuffix("_ns").removesuffix("_")),
        populate_by_name=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, data: Any) -> Any:
        """YAML has lists; frozen values hold tuples."""
        if isinstance(data, dict):
            return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return data


class Resource(_Strict):
    """What every kind has: a name, unique within its kind."""

    KIND: ClassVar[str]
    name: Name


class Site(Resource):
    """A place where pods run or data rests."""

    KIND: ClassVar[str] = "Site"
    provider: Literal["coreweave", "gcp", "aws", "azure", "onprem"]
    region: Region
    jurisdiction: Country


class Identity(_Strict):
    """How the webhook knows that a call comes from this cluster's API server."""

    client_ca: str | None = Field(default=None, alias="clientCA")
    client_ca_file: str | None = Field(default=None, alias="clientCAFile")
    path_token: bool = False


class Cluster(Resource):
    """A Kubernetes cluster: its sites, and how a node's label names its site."""

    KIND: ClassVar[str] = "Cluster"
    sites: Annotated[Names, Some]
    site_label: str = SITE_LABEL
    site_labels: dict[LabelValue, Name] = Field(default_factory=dict)
    identity: Identity = Identity()
    unbound: Literal["deny", "warn", "ignore"] = "warn"
    unbound_until_ns: DayEndNs | None = None
    warn_namespaces: Names = ()
    platform_namespaces: Names = ()


class Tenant(Resource):
    """Whoever owns data and runs jobs."""

    KIND: ClassVar[str] = "Tenant"
    display_name: Annotated[str, Field(min_length=1, max_length=200)]
    jurisdictions: Annotated[tuple[Country, ...], Some]


class NamespaceBinding(Resource):
    """What the pods of one namespace of one cluster may do, and for whom."""

    KIND: ClassVar[str] = "NamespaceBinding"
    cluster: Name
    namespace: Name
    tenant: Name
    regions: Annotated[tuple[Region, ...], Some]
    datasets: Names = ()
    segments: Names = ()
    undeclared: Literal["deny", "closed-world"] = "deny"
    gate: Literal["required", "advisory"] = "required"


class LinkProfile(Resource):
    """VLAN, MACsec, timing of rotation and of the gate, shared by links."""

    KIND: ClassVar[str] = "LinkProfile"
    vlan: Annotated[int, Field(ge=1, le=4094)]
    cipher_suite: CipherSuite
    replay_window: Annotated[int, Field(ge=0, le=2**30)] = 0
    confidentiality_offset: int = 0
    must_secure: bool = True
    clear_tags: tuple[EtherType, ...] = ()
    rotate_every_ns: DurationNs
    prepare_before_ns: DurationNs
    jitter_ns: DurationNs
    soft_age_ns: DurationNs
    hard_age_ns: DurationNs
    on_hard_age: Literal["hold", "close"] = "hold"
    on_control_loss: Literal["hold", "close"] = "hold"
    max_hold_ns: DurationNs
    ttl_ns: DurationNs
    arm_ns: DurationNs
    path_delay_ns: DurationNs
    reorder_bound_ns: DurationNs
    overlap_ns: DurationNs
    revert_after_ns: DurationNs
    step_deadline_ns: DurationNs
    total_deadline_ns: DurationNs
    max_sa_per_sc: Literal[2, 4] = 4
    line_rate_gbps: Annotated[int, Field(ge=1, le=3200)]


class Endpoint(_Strict):
    """One end of a link. `agent`, `driver` and `sci` are null where nothing keys the link."""

    site: Name
    agent: Name | None = None
    driver: Literal["software", "kernel", "mka", "sonic", "gnmi", "cloud"] | None = None
    sci: Sci | None = None


class Link(Resource):
    """A point-to-point circuit between two sites."""

    KIND: ClassVar[str] = "Link"
    profile: Name
    encryption: Literal["required", "none"]
    endpoints: tuple[Endpoint, ...] = Field(min_length=2, max_length=2)
    diverse_partner: Name | None = None

    @property
    def keyed(self) -> bool:
        """Whether agents stand at both ends, so that the link gets keys."""
        return all(e.agent is not None and e.sci is not None for e in self.endpoints)


class Dataset(Resource):
    """Data of one owner: where it rests and from which regions it may be read."""

    KIND: ClassVar[str] = "Dataset"
    owner: Name
    sites: Annotated[Names, Some]
    regions: Annotated[tuple[Region, ...], Some]
    classification: Literal["public", "internal", "confidential", "restricted"] = "confidential"


class Segment(Resource):
    """A part of a dataset held in a cross-cloud cache for one tenant."""

    KIND: ClassVar[str] = "Segment"
    dataset: Name
    tenant: Name
    site: Name
    cache: Name


class Flow(Resource):
    """The links that a read takes from the site that holds data to the site that reads it, in order."""

    KIND: ClassVar[str] = "Flow"
    from_: Name
    to: Name
    class_: Literal["bulk", "interactive"]
    links: Annotated[Names, Some]


KINDS: Final[dict[str, type[Resource]]] = {
    k.KIND: k for k in (Site, Cluster, Tenant, NamespaceBinding, LinkProfile, Link, Dataset, Segment, Flow)
}
