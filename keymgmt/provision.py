"""Set-up of the key store: mounts, keys, PKI, policies, roles; then links, identities and enrolment.

`setup` runs once with the root token, is idempotent, and ends with nothing left that needs root: afterwards
adding a link, renewing and upgrading go through the provisioner's role (rotation.md section 1.5). Policies
are the files of `deploy/openbao`, read from the package or from the source tree.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final

from evidence import durable
from keymgmt.bao import Address, AppRole, BaoSession
from keymgmt.custody import Enrolment
from keymgmt.custody_openbao import OpenBaoStore, read_epoch
from keymgmt.errors import CustodyRefused, CustodyUnavailable, EpochMismatch, RightsRefused
from keymgmt.limits import LIMITS, Limits
from keymgmt.openbao import OpenBaoChild

SERVICE_ROLES: Final = ("conductor", "gate", "ledger", "enroller", "provisioner")
POLICIES: Final = ("agent", "enrol", *SERVICE_ROLES)
_PREFIX: Final = "sluicegate/"
_SIGNING_KEYS: Final = ("ledger", "permit-root")
_CA_TTL: Final = "87600h"
_LOOPBACK: Final = ("127.0.0.1/32", "::1/128")


@dataclass(frozen=True, slots=True)
class Networks:
    """From where tokens may be used (CIDR). Embedded: loopback only."""

    services: tuple[str, ...] = _LOOPBACK
    agents: tuple[str, ...] = _LOOPBACK


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A provisioned store as the control plane uses it: credentials per role, the agents' CA, the epoch."""

    address: Address
    epoch: int
    agents_ca: str
    roles: Mapping[str, AppRole]

    def session(self, role: str, *, limits: Limits = LIMITS) -> BaoSession:
        """A new session of one service role."""
        return BaoSession(self.address, self.roles[role], limits=limits)


def policy_text(name: str, epoch: int) -> str:
    """One policy file with its epoch filled in."""
    packaged = resources.files("keymgmt").joinpath("_data", "openbao", f"{name}.hcl")
    source = Path(__file__).resolve().parent.parent / "deploy" / "openbao" / f"{name}.hcl"
    text = packaged.read_text() if packaged.is_file() else source.read_text()
    return Template(text).substitute(epoch=epoch)


def open_embedded(child: OpenBaoChild, *, networks: Networks | None = None) -> KeyStore:
    """The key store of an active child: set up at first, opened from the state folder after.

    Raises:
        CustodyUnavailable: no answer.
        CustodyRefused: the folder's credentials are refused.
        EpochMismatch: folder and store disagree about the epoch.
    """
    address = Address(child.url, child.tls.ca_file)
    kept = child.folder / "roles.json"
    root = child.secrets().root_token
    if root:
        _set_up(address, root, kept, networks or Networks())
        child.forget_root()
    doc = json.loads(kept.read_text())
    roles = {name: AppRole(entry["role_id"], entry["secret_id"]) for name, entry in doc["roles"].items()}
    store = KeyStore(address, int(doc["epoch"]), doc["agents_ca"], roles)
    check_epoch(store)
    return store


def _set_up(address: Address, root: str, kept: Path, networks: Networks) -> None:
    """Everything with the root token, then revoke it. A crash at any point is repaired by the next start."""
    session = BaoSession(address, token=root)
    try:
        if kept.exists():
            _revoke_leftover(session)
            return
        setup(session, epoch=1, networks=networks)
        durable.replace(kept, (json.dumps(_credentials(session, epoch=1)).encode(),))
        session.revoke_self()
    finally:
        session.close()


def _revoke_leftover(session: BaoSession) -> None:
    """Set-up was done, the process died before it had forgotten the token: perhaps it is revoked already."""
    with contextlib.suppress(RightsRefused):
        session.revoke_self()


def check_epoch(store: KeyStore) -> None:
    """Compare the epoch of folder and store; nothing is issued on a mismatch.

    Raises:
        EpochMismatch: they differ: one of them was restored from an older copy.
    """
    session = store.session("conductor")
    try:
        held = read_epoch(session)
    finally:
        session.close()
    if held != store.epoch:
        why = f"the key store says epoch {held}, the state folder {store.epoch}"
        fix = "put both back from copies of one moment, or start with a new state folder"
        raise EpochMismatch(why, fix=fix)


def setup(root: BaoSession, *, epoch: int, networks: Networks) -> None:
    """Everything that needs root, once; every part looks first and changes nothing that stands."""
    _mounts(root, epoch)
    for key in _SIGNING_KEYS:
        root.write(f"transit/keys/{key}", {"type": "ed25519"})
    for name in POLICIES:
        root.write(f"sys/policies/acl/{_PREFIX}{name}", {"policy": policy_text(name, epoch)})
    ca = _agents_ca(root)
    root.write("pki/roles/agent", _PKI_ROLE)
    root.write("auth/cert/certs/agent", _cert_role(ca, networks))
    for name in SERVICE_ROLES:
        root.write(f"auth/approle/role/{name}", _service_role(name, networks))
    _first_epoch(root, epoch)


def _mounts(root: BaoSession, epoch: int) -> None:
    mounts, auths = root.read("sys/mounts") or {}, root.read("sys/auth") or {}
    wanted: dict[str, dict[str, Any]] = {
        f"links-e{epoch}/": {"type": "transit"},
        "transit/": {"type": "transit"},
        "pki/": {"type": "pki", "config": {"max_lease_ttl": _CA_TTL}},
        "kv/": {"type": "kv", "options": {"version": "2"}},
    }
    for path, body in wanted.items():
        if path not in mounts:
            root.write(f"sys/mounts/{path.rstrip('/')}", body)
    for path, kind in (("approle/", "approle"), ("enrol/", "approle"), ("cert/", "cert")):
        if path not in auths:
            root.write(f"sys/auth/{path.rstrip('/')}", {"type": kind})


def _agents_ca(root: BaoSession) -> str:
    if not root.list("pki/issuers"):
        body = {"common_name": "Sluicegate agents", "key_type": "ec", "key_bits": 256, "ttl": _CA_TTL}
        root.write("pki/root/generate/internal", body)
    found = root.read("pki/cert/ca")
    if found is None:
        raise CustodyUnavailable("the agents' CA was made but cannot be read")
    return str(found["certificate"])


_PKI_ROLE: Final[Mapping[str, Any]] = {
    "allowed_domains": ["{{identity.entity.metadata.agent}}"],
    "allowed_domains_template": True,
    "allow_bare_domains": True,
    "allow_subdomains": False,
    "allow_ip_sans": False,
    "allow_localhost": False,
    "enforce_hostnames": False,
    "use_csr_common_name": True,
    "use_csr_sans": False,
    "key_type": "ec",
    "key_bits": 256,
    "client_flag": True,
    "server_flag": False,
    "key_usage": ["DigitalSignature"],
    "ext_key_usage": [],
    "max_ttl": "720h",
    "ttl": "720h",
    "no_store": False,
}


def _cert_role(ca: str, networks: Networks) -> dict[str, Any]:
    return {
        "certificate": ca,
        "token_policies": [f"{_PREFIX}agent"],
        "token_period": "10m",
        "token_no_default_policy": True,
        "token_bound_cidrs": list(networks.agents),
    }


def _service_role(name: str, networks: Networks) -> dict[str, Any]:
    # The roles that make identities work for minutes at a time, the others renew while they run.
    brief = name in {"provisioner", "enroller"}
    life = {"token_ttl": "10m", "token_max_ttl": "10m"} if brief else {"token_period": "10m"}
    return {
        "token_policies": [f"{_PREFIX}{name}"],
        **life,
        "token_no_default_policy": True,
        "token_bound_cidrs": list(networks.services),
        "secret_id_bound_cidrs": list(networks.services),
    }


def _first_epoch(root: BaoSession, epoch: int) -> None:
    store = OpenBaoStore(root)
    if store.get("epoch") is None:
        store.put("epoch", {"epoch": str(epoch)}, expected=0)


def _credentials(root: BaoSession, *, epoch: int) -> dict[str, Any]:
    roles = {}
    for name in SERVICE_ROLES:
        found = root.read(f"auth/approle/role/{name}/role-id")
        made = root.write(f"auth/approle/role/{name}/secret-id")
        if found is None:
            raise CustodyUnavailable(f"role {name} was made but cannot be read")
        roles[name] = {"role_id": found["role_id"], "secret_id": made["data"]["secret_id"]}
    return {"v": 1, "epoch": epoch, "agents_ca": _agents_ca(root), "roles": roles}


class OpenBaoProvisioner:
    """`Provisioner` over the roles `provisioner` and `enroller`; root is not needed."""

    def __init__(
        self,
        provisioner: BaoSession,
        enroller: BaoSession,
        *,
        epoch: int,
        networks: Networks | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self._bao = provisioner
        self._enroller = enroller
        self._epoch = epoch
        self._networks = networks or Networks()
        self._wrap_ttl_s = limits.wrap_ttl_s

    def add_link(self, link: str, agents: tuple[str, str]) -> None:
        """Create key, entities, aliases and enrolment roles; repeating it changes nothing."""
        key = f"links-e{self._epoch}/keys/{link}"
        if self._bao.read(key) is None:
            self._bao.write(key, {"type": "aes256-gcm96", "auto_rotate_period": "0"})
        auths = self._bao.read("sys/auth") or {}
        for agent in agents:
            self._add_agent(agent, link, auths)

    def _add_agent(self, agent: str, link: str, auths: Mapping[str, Any]) -> None:
        """One entity per link end: templates know no lists, so a device with two links has two."""
        path = f"identity/entity/name/{agent}"
        entity = self._bao.read(path)
        if entity is not None and (entity.get("metadata") or {}).get("link") != link:
            raise CustodyRefused(f"agent {agent} belongs to another link", fix="one agent name per link end")
        if entity is None:
            self._bao.write(path, {"metadata": {"agent": agent, "link": link}})
            entity = self._bao.read(path)
        if entity is None:
            raise CustodyUnavailable(f"entity of {agent} was made but cannot be read")
        self._bao.write(f"auth/enrol/role/{agent}", self._enrol_role())
        role = self._bao.read(f"auth/enrol/role/{agent}/role-id")
        if role is None:
            raise CustodyUnavailable(f"enrolment role of {agent} was made but cannot be read")
        for name, mount in ((agent, "cert/"), (role["role_id"], "enrol/")):
            alias = {"name": name, "canonical_id": entity["id"], "mount_accessor": auths[mount]["accessor"]}
            self._bao.write("identity/entity-alias", alias)

    def _enrol_role(self) -> dict[str, Any]:
        return {
            # Strings: the provisioner's policy compares each with its one allowed value.
            "token_policies": f"{_PREFIX}enrol",
            "token_no_default_policy": "true",
            "token_num_uses": "1",
            "token_ttl": f"{self._wrap_ttl_s}s",
            "token_bound_cidrs": list(self._networks.agents),
            "secret_id_num_uses": "1",
            "secret_id_ttl": f"{self._wrap_ttl_s}s",
            "secret_id_bound_cidrs": list(self._networks.agents),
        }

    def enrol(self, agent: str, link: str) -> Enrolment:
        """A wrapped one-use secret_id.

        Raises:
            CustodyRefused: the agent was not added.
            CustodyUnavailable: no answer.
        """
        found = self._enroller.read(f"auth/enrol/role/{agent}/role-id")
        if found is None:
            raise CustodyRefused(f"agent {agent} was not added", fix="add its link first")
        path = f"auth/enrol/role/{agent}/secret-id"
        wrap = self._enroller.write(path, wrap_ttl_s=self._wrap_ttl_s).get("wrap_info") or {}
        return Enrolment(agent, link, found["role_id"], str(wrap.get("token", "")))

    def disable(self, agent: str) -> None:
        """Stop live tokens and logins at once. Revoking the certificate alone would not."""
        self._bao.write(f"identity/entity/name/{agent}", {"disabled": True})
