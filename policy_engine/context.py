"""Context: the slice of declared state that one decision needs (decide.md section 1). Pure.

    context(facts, resources, postures) -> dict

Index look-ups only, so cost does not grow with the estate. For a name that is not granted to the asking
binding the context holds `{"granted": false}` and nothing else, the same for foreign and for absent.

    {"v": 1,
     "cluster": {"name": str,
         "known": bool,                  # false: no such Cluster is declared (then unbound is "deny")
         "unbound": "deny|warn|ignore",  # for THIS namespace: warn only if it is listed in warnNamespaces;
                                         #   "ignore" for cluster-scoped objects that run nothing
         "until_ns"?: "<ns>",            # with warn: from this time on it means deny (compare with now)
         "platform": bool},              # namespace is one of platformNamespaces (exempt)
     "bound": bool,
     "binding"?: {"name", "tenant", "regions": [str], "undeclared": "deny|closed-world",
                  "gate": "required|advisory"},
     "tenant"?: {"name", "jurisdictions": [str]},
     "sites": {site: {"region", "jurisdiction", "provider"}},     # only those named in landing or reads
     "landing": [{"pod": path, "sites": [site], "unmapped": [str]}],
         # sites it may land in, sorted. No selector on the site label = every site of the cluster.
         # unmapped: values of the site label that its selector allows and the Cluster does not map.
         # sites == []: the selector can match no declared site; rules must refuse, not skip.
     "datasets": {name: {"granted": true, "owner", "regions": [..], "sites": [..], "classification"}
                        | {"granted": false}},
     "segments": {name: {"granted": true, "dataset", "site", "tenant", "regions": [..]}
                        | {"granted": false}},
     "reads": [{"pod": path, "kind": "dataset|segment", "name", "from": holding site, "to": landing site,
                "local": bool, "flow": name | null, "links": [link]}],
         # each holding site x each landing site. local: from == to, flow null, links [].
         # local false and flow null: no Flow is declared => residency.no_flow
     "links": {name: {"encryption": "required|none",              # as declared
                      "state": "open|closed|none", "posture": "encrypted|violation|unknown",
                      "reason": str, "since_ns": "<ns>", "fresh_until_ns": "<ns>", "generation": int}}}
         # no posture reported: state none, posture unknown, since_ns and fresh_until_ns "0"

Nothing is computed from the current time here: `now` is an input of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from policy_engine.resources.resource_set import ResourceSet


class Posture(Protocol):
    """What context reads of a `LinkPosture` (policy_engine.gate.posture)."""

    @property
    def state(self) -> str:
        """open | closed | none."""

    @property
    def posture(self) -> str:
        """encrypted | violation | unknown."""

    @property
    def reason(self) -> str:
        """Why, for people."""

    @property
    def since_ns(self) -> int:
        """When it became so."""

    @property
    def fresh_until_ns(self) -> int:
        """From then on it is unknown."""

    @property
    def generation(self) -> int:
        """Counts changes of this link's posture."""


def context(
    facts: Mapping[str, Any], resources: ResourceSet, postures: Mapping[str, Posture]
) -> dict[str, Any]:
    """The slice for one decision (see the module docstring for the shape)."""
    raise NotImplementedError
