"""Steady samples become one record per link and interval: encrypted yes, no or unknown (`link_verdict`).

The raw samples stay out of the ledger; their digests are the leaves of an RFC 6962 tree whose root the
record carries, so that samples kept beside could be proved later; nothing keeps them yet. Where an end was
silent for longer than a sample may be relied on, the interval is unknown: counters do not say how the end was
set meanwhile. Of a shared link each tenant that uses it gets the verdict in its own scope; the counters are
sensitive and released in the estate package only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from evidence import merkle
from evidence.canonical import canonical
from evidence.records import Draft
from keymgmt.checks import encode_counters
from keymgmt.counters import Interval, evaluate
from keymgmt.samples import Sample
from policy_engine.gate.judged import SOURCE

RATE_FPS: Final = 2_000  # upper bound of software links per direction, for the tolerance
SKEW_NS: Final = 2_000_000_000  # two ends sample at different moments
IN_FLIGHT: Final = 256  # frames
SAMPLES_MAX: Final = 4_096  # per end and interval; later ones enter the counters, not count and root


@dataclass(slots=True)
class _End:
    first: Sample
    last: Sample
    seen_ns: int  # when the last one came
    gap_ns: int = 0  # the longest silence so far
    digests: list[str] = field(default_factory=list)
    key_ids: list[str] = field(default_factory=list)
    faults: bool = False

    def add(self, sample: Sample, now_ns: int) -> None:
        self.gap_ns = max(self.gap_ns, now_ns - self.seen_ns)
        self.last, self.seen_ns = sample, now_ns
        if len(self.digests) < SAMPLES_MAX:
            self.digests.append(sample.digest())
        self.faults = self.faults or bool(sample.faults)
        if sample.tx_key_id is not None and sample.tx_key_id not in self.key_ids:
            self.key_ids.append(sample.tx_key_id)


class VerdictBatch:
    """Collects the samples of one interval of all links.

    Args:
        begin_ns: Start of the first interval, wall clock.
        scopes: Names of the scopes that are told of a link besides the estate.
        fresh_for_ns: How long a sample of a link may be relied on.
        faulty: Whether fault injection is possible on this system at all; an end that names a fault in force
            is believed too.
    """

    def __init__(
        self,
        begin_ns: int,
        scopes: Callable[[str], Iterable[str]],
        fresh_for_ns: Callable[[str], int],
        *,
        faulty: bool = False,
    ) -> None:
        self._fresh_for_ns = fresh_for_ns
        self._begin_ns = begin_ns
        self._scopes = scopes
        self._faulty = faulty
        self._ends: dict[str, dict[str, _End]] = {}

    def add(self, sample: Sample, now_ns: int) -> None:
        """Take in one verified sample that was received now."""
        ends = self._ends.setdefault(sample.link, {})
        end = ends.get(sample.endpoint)
        if end is None:
            end = ends[sample.endpoint] = _End(sample, sample, self._begin_ns)
        end.add(sample, now_ns)

    def flush(self, links: Iterable[str], end_ns: int) -> list[Draft]:
        """The records of the interval that ends now; begins the next one.

        A link without samples of both ends gets a record too: silence is a verdict (unknown).
        """
        drafts: list[Draft] = []
        for link in links:
            public, sensitive = self._judge(link, end_ns)
            event = hashlib.sha256(f"{link}\n{self._begin_ns}\n{end_ns}".encode()).hexdigest()[:32]
            drafts += [
                Draft("link_verdict", scope, SOURCE, end_ns, public, sensitive, {"event_id": event})
                for scope in ("estate", *sorted(self._scopes(link)))
            ]
        # The last sample of this interval is the first of the next: no moment is left out.
        self._ends = {
            link: {name: _restart(end) for name, end in ends.items()} for link, ends in self._ends.items()
        }
        self._begin_ns = end_ns
        return drafts

    def _judge(self, link: str, end_ns: int) -> tuple[dict[str, Any], dict[str, Any]]:
        ends = self._ends.get(link, {})
        public: dict[str, Any] = {
            "link": link,
            "begin": str(self._begin_ns),
            "end": str(end_ns),
            "encrypted": "unknown",
            "faults_enabled": self._faulty or any(end.faults for end in ends.values()),
        }
        if set(ends) != {"a", "b"}:
            return public | {"reason": "an end sent no sample", "samples": 0}, {}
        a, b = ends["a"], ends["b"]
        verdict = evaluate(
            Interval(a.first, a.last),
            Interval(b.first, b.last),
            rate_fps=RATE_FPS,
            skew_ns=SKEW_NS,
            in_flight=IN_FLIGHT,
        )
        silent = "" if verdict.encrypted == "no" else self._silence(link, ends, end_ns)
        counters = {
            name: {
                "first": encode_counters(end.first.counters),
                "last": encode_counters(end.last.counters),
                "samples_root": _root(end.digests),
            }
            for name, end in ends.items()
        }
        public |= {
            "encrypted": "unknown" if silent else verdict.encrypted,
            "reason": (silent or next(iter(verdict.why), ""))[:512],
            "key_ids": {name: end.key_ids[-8:] for name, end in ends.items()},
            "samples": len(a.digests) + len(b.digests),
            "counters_digest": hashlib.sha256(canonical(counters)).hexdigest(),
        }
        return public, {"counters": counters}

    def _silence(self, link: str, ends: Mapping[str, _End], end_ns: int) -> str:
        """Which end was silent for longer than its samples may be relied on; empty when none was."""
        bound = self._fresh_for_ns(link)
        for name, end in sorted(ends.items()):
            gap = max(end.gap_ns, end_ns - end.seen_ns)
            if gap > bound:
                return (
                    f"end {name} sent no sample for {gap / 1e9:.1f} s; one is relied on for {bound / 1e9:g} s"
                )
        return ""


def _restart(end: _End) -> _End:
    return _End(end.last, end.last, end.seen_ns)


def _root(digests: list[str]) -> str:
    """RFC 6962 root over sample digests (hex)."""
    return merkle.root([merkle.leaf_hash(bytes.fromhex(digest)) for digest in digests]).hex()


def links_of_tenants(resources: Any) -> Mapping[str, frozenset[str]]:
    """Link name -> tenants whose bindings may read over it (each landing site x each holding site)."""
    found: dict[str, set[str]] = {}
    for binding in resources.bindings.values():
        cluster = resources.clusters[binding.cluster]
        sites = {name for name in cluster.sites if resources.sites[name].region in binding.regions}
        held = {site for name in binding.datasets for site in resources.datasets[name].sites}
        held |= {resources.segments[name].site for name in binding.segments}
        for source in held:
            for target in sites:
                flow = resources.flows.get((source, target))
                for link in flow.links if flow is not None else ():
                    found.setdefault(link, set()).add(binding.tenant)
    return {link: frozenset(tenants) for link, tenants in found.items()}
