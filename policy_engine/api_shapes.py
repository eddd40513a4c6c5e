"""Forms of the main answers, for the API's description.

They describe and do not filter: what an operation answers goes out as it is, and a field that is not named
here may come with it. Tests hold real answers against them.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_NS = "Nanoseconds since 1970 as a decimal string."


class Shape(BaseModel):
    """An answer that may grow."""

    model_config = ConfigDict(strict=True, extra="allow")


class ReasonOut(Shape):
    """One violation of one rule."""

    rule: str = Field(description="Id of the rule, such as residency.region.")
    text: str
    fix: str
    path: str = Field(description="Path of the field within the object; may be empty.")
    subject: str = Field(description="Container, volume or pod that is meant; may be empty.")
    severity: str
    params: dict[str, Any]


class DecisionOut(Shape):
    """What the webhook would answer."""

    allowed: bool
    exempt: str = Field(description="Why no rule was asked; empty where rules were.")
    reasons: list[ReasonOut] = Field(description="Why it is refused.")
    warnings: list[ReasonOut] = Field(description="What was wrong before, or is only advised.")
    policy_digest: str
    input_digest: str
    resource_digest: str


class WhyOut(Shape):
    """The first of scheduler, posture and gate that is not good and that somebody can act on.

    What only takes its time is named only when nothing else is wrong; "ok" when all are good.
    """

    check: str
    detail: str
    next: str = Field(description="The operator's next step; may be empty.")


class PostureOut(Shape):
    """What is known of a link's encryption."""

    state: Literal["open", "closed", "none"]
    posture: Literal["encrypted", "violation", "unknown"]
    reason: str
    since_ns: str = Field(description=_NS)
    fresh_until_ns: str = Field(description=_NS)
    generation: int
    message: str


class GateOut(Shape):
    """The standing order to the gate."""

    order: Literal["open", "closed"]
    reason: str
    since_ns: str = Field(description=_NS)


class LinkOut(Shape):
    """One link."""

    link: str
    encryption: Literal["required", "none"]
    keyed: bool
    live: dict[str, Any] | None = Field(description="The key in use; null where there is none.")
    why: WhyOut
    posture: PostureOut | None = None
    gate: GateOut | None = None
    ends: dict[str, dict[str, Any]]


class LinksOut(Shape):
    """Links in reach, by name."""

    links: list[LinkOut]


class StatusOut(Shape):
    """State of every part. Only what every deployment says is named here."""

    mode: str
    custody: str = Field(description="Who holds the keys, and whether apart.")
    evidence: str
    faults: str
    instance: str
    started_ns: str = Field(description=_NS)


class ReadinessOut(BaseModel):
    """Whether it is ready, and what is missing."""

    status: Literal["ok", "not ready"]
    missing: dict[str, str]
