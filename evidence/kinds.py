"""Record kinds: which fields exist, and which part of the record carries each.

A record has three parts, each under a salt of its own: the header (what the ledger itself knows), the
public body, and the sensitive body that can be withheld while the proof holds (ledger.md section 2).
Unknown kinds and fields are refused: what is not declared here cannot leak into a package.

Each kind is owned by the module that drafts it. A changed meaning is a new `version`, never an edit.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADER = frozenset({"event_id", "caused_by"})  # header fields any draft may set; both ids, no content


@dataclass(frozen=True, slots=True)
class Kind:
    """Declaration of one record kind.

    Attributes:
        version: Version of the field set, written into each header.
        public: Fields released with the record.
        sensitive: Fields released only where the package may show them.
        header: Fields that a draft may add to the header.
    """

    version: int
    public: frozenset[str]
    sensitive: frozenset[str] = frozenset()
    header: frozenset[str] = HEADER


def _kind(public: str, sensitive: str = "", *, version: int = 1) -> Kind:
    return Kind(version, frozenset(public.split()), frozenset(sensitive.split()))


KINDS: dict[str, Kind] = {
    # Deciding (owner: admission).
    # Names of objects and people are sensitive; what was judged by which rules, and the verdict, is not.
    "decision": _kind(
        "decision_id cluster binding group version kind operation subresource dry_run allowed rules warned"
        " exempt exceptions engine policy_digest bundle_digest input_digest facts_digest context_digest"
        " resource_digest caller now generation",
        "uid namespace name facts context reasons warnings",
    ),
    # Refusals that were no answered decisions (overload, spool unwritable, late), counted in memory.
    "decision_summary": _kind("counts first last late"),
    # Declared state and the bundle (owner: composition).
    "resource_set": _kind("digest generation counts changes", "changed_by"),
    "bootstrap": _kind("digest generation counts custody mode"),
    "widened_unapproved": _kind("digest previous_digest generation changes"),
    "bundle": _kind("bundle_digest policy_digest version previous_version trusted_by"),
    # Rotation and custody (owner: rotation).
    "rotation_step": _kind(
        "link rotation step kind state status outcome an key_ids checks_equal key_version epoch"
        " ciphertext_digest token agent endpoint elapsed_ms error detail",
        "holder counters",
    ),
    "rotation_end": _kind(
        "link rotation end why why_code old_key_ids new_key_ids checks_equal frames_lost elapsed_ms"
        " epoch key_version steps",
        "counters",
    ),
    "key_destroyed": _kind("link rotation key_version epoch read_back statement snapshots_expire"),
    "agent_enrolled": _kind("agent link endpoint method certificate_digest not_after", "address"),
    "lease": _kind("name token action since until", "holder"),
    # Posture and gate (owner: composition; permits and orders: gate).
    "link_verdict": _kind(
        "link begin end encrypted key_ids key_id samples reason counters_digest faults_enabled",
        "counters",
    ),
    "violation": _kind("link endpoint reason since generation until", "counters detail"),
    "permit": _kind(
        "link endpoint epoch seq ttl_ms max_hold_ms arm_ms hard_not_after posture_generation"
        " violation_generation sample_digest order_digest count first last",
        "boot_id nonce",
    ),
    "close": _kind("link endpoint epoch seq reason since posture_generation order_digest"),
    "reopen": _kind("link endpoint epoch seq reason closed_since posture_generation order_digest"),
    # Imported logs and what was joined (owner: package).
    "source_object": _kind(
        "object_id source_name source_class uri version_id etag sha256_stored sha256_inflated octets"
        " fetched_at provider_signature parser parser_digest time_means resolution_ns lines rows"
        " quarantined duplicates end_of_source",
        "fetched_by",
    ),
    "log_segment": _kind(
        "segment_id object_id source_name source_class root rows min_event_time max_event_time parser"
        " parser_version row_version parquet_sha256 quarantined duplicates",
    ),
    "attribution_run": _kind(
        "run_id method segments jobs_segment window_begin window_end grace_ns engine sql_digest counts"
        " result_root rows parquet_sha256 bucket_ns leases_sha256",
    ),
    "package_export": _kind(
        "package_id package_sha256 scopes window_begin window_end ranges provisional", "requested_by"
    ),
    # The estate itself (owner: composition).
    "heartbeat": _kind("component instance generation digest status versions"),
    "faults_enabled": _kind("component link agent since faults"),
    "signing_key": _kind("statement old_signature new_signature"),
}
