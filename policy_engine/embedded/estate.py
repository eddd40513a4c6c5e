"""From declared resources to the small inputs of key management and gate. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from keymgmt.model import EndpointSpec, LinkSpec, ProfileSpec
from policy_engine.resources.model import Link, LinkProfile
from policy_engine.resources.resource_set import ResourceSet


def profile_spec(profile: LinkProfile) -> ProfileSpec:
    """A LinkProfile as key management sees it."""
    return ProfileSpec(
        name=profile.name,
        cipher=profile.cipher_suite,
        max_sa_per_sc=profile.max_sa_per_sc,
        replay_window=profile.replay_window,
        must_secure=profile.must_secure,
        clear_tags=profile.clear_tags,
        rotate_every_ns=profile.rotate_every_ns,
        prepare_before_ns=profile.prepare_before_ns,
        jitter_ns=profile.jitter_ns,
        soft_age_ns=profile.soft_age_ns,
        hard_age_ns=profile.hard_age_ns,
        on_hard_age=profile.on_hard_age,
        on_control_loss=profile.on_control_loss,
        max_hold_ns=profile.max_hold_ns,
        ttl_ns=profile.ttl_ns,
        arm_ns=profile.arm_ns,
        path_delay_ns=profile.path_delay_ns,
        reorder_bound_ns=profile.reorder_bound_ns,
        overlap_ns=profile.overlap_ns,
        revert_after_ns=profile.revert_after_ns,
        step_deadline_ns=profile.step_deadline_ns,
        total_deadline_ns=profile.total_deadline_ns,
        line_rate_gbps=profile.line_rate_gbps,
    )


def link_spec(link: Link, profile: LinkProfile) -> LinkSpec:
    """A Link whose two ends have agents."""
    a, b = link.endpoints
    return LinkSpec(
        name=link.name,
        profile=profile_spec(profile),
        a=EndpointSpec("a", a.site, a.sci or "", a.agent, a.driver or "software"),
        b=EndpointSpec("b", b.site, b.sci or "", b.agent, b.driver or "software"),
        encryption=link.encryption,
        diverse_partner=link.diverse_partner,
    )


def keyed_links(resources: ResourceSet) -> Mapping[str, LinkSpec]:
    """Every link that gets keys, by name."""
    return {
        name: link_spec(link, resources.profiles[link.profile])
        for name, link in resources.links.items()
        if link.keyed and link.encryption == "required"
    }


def bare_links(resources: ResourceSet) -> Mapping[str, str]:
    """Links that nothing keys: name -> declared encryption."""
    return {
        name: link.encryption
        for name, link in resources.links.items()
        if not (link.keyed and link.encryption == "required")
    }
