"""All limits of the control plane, with units. One frozen value; the environment is not read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what is read and kept. Others append fields, with the unit in the comment."""

    # Declared state (resources)
    resource_file_bytes: int = 1_048_576  # bytes of one YAML file; checked before it is parsed
    resource_files: int = 10_000  # files in one directory of declared state
    resource_total_bytes: int = 64 * 1_048_576  # bytes of all files together
    yaml_depth: int = 32  # levels of nesting in one document
    yaml_nodes: int = 200_000  # nodes in one document
    problems_reported: int = 1_000  # problems shown of one set
    agent_poll_seconds: int = 25  # seconds that an agent's poll may wait for work (rotation.md section 4)

    # Objects given on the command line
    object_file_bytes: int = 16 * 1_048_576  # bytes of one file of Kubernetes manifests
    object_documents: int = 10_000  # documents in one such file

    # Facts
    image_reference_chars: int = 512  # characters; longer ones are malformed (OCI allows 255 + tag + digest)
    declared_names: int = 64  # names in one sluicegate.io/datasets or /segments annotation
    declared_total: int = 4_096  # names that one pod declares, those of all its volumes included
    context_reads: int = 20_000  # paths of data in one context; more are not judged but refused
    placement_values: int = 1_000  # expressions and values of one pod's node affinity; more land anywhere
    declared_name_chars: int = 253  # characters of one such name
    env_chars: int = 1_048_576  # characters of one container's variables once they are put into each other
    env_value_chars: int = 8_192  # characters of one variable that are put into another
    search_nodes: int = 500_000  # nodes visited when looking for PodSpecs in an unknown kind
    pods: int = 2_000  # PodSpecs of one object; more are not looked at but refused
    search_depth: int = 200  # levels visited; deeper is reported as unreadable
    notes_kept: int = 100  # unreadable (and unresolved) entries kept in one object's facts
    path_chars: int = 1_000  # characters of a field path in facts
    embedded_chars: int = 1_048_576  # characters of one string that is searched for an embedded manifest

    # Listeners
    http_header_bytes: int = 65_536  # octets of one request's line and headers
    http_header_s: float = 10.0  # seconds from connecting, or from a request's first octet, to its headers
    http_drain_s: int = 10  # seconds that a stopping listener waits for requests it has read
    http_pipeline: int = 16  # requests of one connection that wait for the answer to the one before
    open_files: int = 65_536  # descriptors that the process may have open, where the system lets it

    # Admission
    review_body_bytes: int = 8 * 1_048_576  # octets of a review (etcd takes 1.5 MB; old + new + envelope)
    review_body_s: float = 5.0  # seconds from a review's headers to its last octet
    review_uid_chars: int = 253  # characters of request.uid (the API server sends 36)
    reviews_in_flight: int = 512  # reviews being read or judged at once; above it: engine.overload
    reviews_in_flight_per_cluster: int = 256  # the same for one cluster
    body_bytes_in_flight: int = 64 * 1_048_576  # octets of review bodies held at once
    decision_deadline_ms: int = 3_000  # milliseconds from a review's headers to its answer
    deadline_margin_ms: int = 500  # milliseconds kept free below the API server's own timeout
    warning_chars: int = 256  # characters of one warning; the API server may cut longer ones
    warnings_chars: int = 4_096  # characters of all warnings; the API server drops the rest
    denial_chars: int = 8_192  # characters of status.message
    summary_ids: int = 1_000  # decision ids listed in one decision_summary record

    # API
    api_body_bytes: int = 4 * 1_048_576  # octets of one API request
    api_body_s: float = 5.0  # seconds from an API request's headers to its last octet
    api_bytes_in_flight: int = 32 * 1_048_576  # octets of API requests being read at once
    token_days: int = 365  # longest validity of a token
    page_rows: int = 1_000  # rows of one page

    # Rules and engines
    bundle_bytes: int = 16 * 1_048_576  # bytes of a bundle, packed or unpacked
    bundle_members: int = 256  # files in a bundle
    engine_input_bytes: int = 4 * 1_048_576  # bytes of one engine input
    engine_output_bytes: int = 4 * 1_048_576  # bytes of one engine answer
    engine_violations: int = 10_000  # violations in one answer
    engine_deadline_ms: int = 100  # milliseconds of one evaluation in Wasm (usual: 0.05)
    engine_tick_ms: int = 5  # milliseconds between two looks at the deadline
    engine_memory_bytes: int = 64 * 1_048_576  # linear memory of one Wasm instance (usual: 1 MB)
    engine_instances: int = 8  # idle Wasm instances that are kept
    opa_deadline_s: float = 0.5  # seconds from asking an OPA server to its whole answer
    opa_workers: int = 8  # questions to an OPA server at once
    reason_value_chars: int = 256  # characters of one value in a denial text; longer ones are cut


LIMITS = Limits()
