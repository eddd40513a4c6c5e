"""All limits of key management in one frozen dataclass, units beside each (python-tuf's form)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and intervals; a test or an estate passes its own instance."""

    # --- agents' stream (hub)
    poll_hold_ms: int = 25_000  # ms: how long a poll without operations is held
    poll_body_max: int = 1_048_576  # octets of one poll
    permit_body_max: int = 65_536  # octets of one permit request
    body_read_ms: int = 10_000  # ms to receive one whole body
    operations_per_poll: int = 32  # operations handed out in one answer
    acks_per_poll: int = 64  # acknowledgements accepted in one poll
    samples_per_poll: int = 64  # signed samples accepted in one poll
    violations_per_poll: int = 64  # violation reports accepted in one poll
    violations_kept: int = 256  # violations kept in memory per endpoint
    requests_per_agent: int = 8  # requests of one agent served at once; the newest poll ends the older ones

    # --- lease and reconcile loop
    lease_ttl_ms: int = 10_000  # ms: an unrenewed lease may be taken after this
    lease_renew_ms: int = 3_000  # ms between renewals
    reconcile_ms: int = 1_000  # ms between two looks at every link without any event
    time_to_act_ms: int = 10_000  # ms from handing out; the hub adds what it held the poll, see `_checks`
    retry_first_ms: int = 2_000  # ms after an unsuccessful rotation before the next try
    retry_max_ms: int = 300_000  # ms: the wait doubles up to this

    # --- custody
    custody_connect_s: float = 3.0  # s
    custody_read_s: float = 10.0  # s
    custody_renew_at: float = 0.5  # share of a token's life after which it renews itself
    destroy_tries: int = 5  # config + trim rounds before the store is called unavailable
    wrap_ttl_s: int = 300  # s an enrolment token stays unwrappable

    # --- embedded OpenBao
    openbao_ready_s: float = 30.0  # s from start to active
    openbao_stop_s: float = 8.0  # s from SIGTERM to SIGKILL
    openbao_restarts: int = 5  # restarts in a window before supervision gives up
    openbao_window_s: float = 60.0  # s

    def __post_init__(self) -> None:
        for ok, why in self._checks():
            if not ok:
                raise ValueError(f"limits: {why}")

    def _checks(self) -> Iterator[tuple[bool, str]]:
        """Relations without which nothing is unsafe, but operations expire or a leader loses its lease."""
        yield 0 < self.poll_hold_ms <= _LONGEST_HOLD_MS, "agents give a poll up after 40 s: hold it less"
        yield self.time_to_act_ms >= 1_000, "an agent needs a second to act"
        yield 0 < self.lease_renew_ms * 2 <= self.lease_ttl_ms, "a lease must survive one missed renewal"


_LONGEST_HOLD_MS = 30_000  # ms; keymgmt.agents.config: poll_timeout_ms is 40 s
LIMITS = Limits()
