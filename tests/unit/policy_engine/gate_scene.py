"""A gate over a real database, with two ends that can be made to say anything."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evidence.records import decode_frame
from keymgmt.model import EndpointSpec, LinkSpec, ProfileSpec
from keymgmt.permit import Expected, PermitKind, key_id_of, verify
from keymgmt.permit_request import PermitRequest
from keymgmt.samples import Sample
from policy_engine.gate import signer as signers
from policy_engine.gate.gather import KeyState
from policy_engine.gate.loop import Gate, GatePorts
from policy_engine.gate.permits import PermitIssuer

S = 1_000_000_000
LINK = LinkSpec(
    "l",
    ProfileSpec("p", ttl_ns=3 * S, max_hold_ns=4 * S, arm_ns=2 * S),
    EndpointSpec("a", "s1", "0000000000000a01", "l-a"),
    EndpointSpec("b", "s2", "0000000000000b01", "l-b"),
)
COUNTERS = {"guard.OutDropped": 0, "rxsc.InPktsOK": 10, "rxsc.InOctetsDecrypted": 1000}


class Sealed:
    """PermitCustody in memory; leaves out transit and its audit."""

    def __init__(self):
        self.key, self.value, self.version = Ed25519PrivateKey.generate(), None, 0

    def root(self):
        public = self.key.public_key().public_bytes_raw()
        return key_id_of(public), public

    def sign(self, octets):
        return self.key.sign(octets)

    def load(self):
        return self.value, self.version

    def store(self, value, version):
        assert version == self.version
        self.value, self.version = value, version + 1


class Scene:
    """A gate over a real database, two ends that can be made to say anything, and a clock."""

    def __init__(self, database):
        self.now = 1_000 * S
        self.keyed = KeyState(keyed=True, key_since_ns=self.now, cipher=LINK.profile.cipher)
        self.custody = Sealed()
        self.signer = signers.obtain(self.custody, 1, self.now, 3600 * S)
        self.database = database
        self.gate = Gate(
            GatePorts(
                database, lambda: {"l": LINK}, lambda: {"old": "none"}, lambda _: self.keyed, lambda: self.now
            )
        )
        self.issuer = PermitIssuer(self.gate, lambda: self.signer)
        self.seq = {"a": 0, "b": 0}
        self.order = {"a": (0, 0), "b": (0, 0)}
        self.closed = {"a": False, "b": False}
        self.counters = {"a": dict(COUNTERS), "b": dict(COUNTERS)}

    def sample(self, end, **changes):
        self.seq[end] += 1
        for name in ("rxsc.InPktsOK", "rxsc.InOctetsDecrypted"):
            self.counters[end][name] += 50
        values = {
            "link": "l",
            "endpoint": end,
            "agent": f"l-{end}",
            "boot_id": "boot",
            "secy_id": f"secy-{end}",
            "seq": self.seq[end],
            "mono_ns": self.now,
            "wall_ns": self.now,
            "protect": True,
            "encrypt": True,
            "validate": "strict",
            "encoding_an": 0,
            "tx_key_id": f"{1 if end == 'a' else 2:032x}",
            "path": "open",
            "faults": (),
            "violation_generation": 0,
            "counters": dict(self.counters[end]),
        }
        return Sample(**(values | changes))

    async def both(self, times=2, **changes):
        for _ in range(times):
            self.now += S // 4
            for end in "ab":
                self.gate.on_sample(self.sample(end, **(changes if end == "a" else {})))
            await self.gate.step()

    async def pull(self, end="a", agent=None, **changes):
        sample = self.sample(end, **changes)
        request = PermitRequest(
            agent or f"l-{end}",
            "l",
            end,
            "ab" * 16,
            "boot",
            f"secy-{end}",
            self.order[end],
            sample.violation_generation,
            self.closed[end],
            sample,
        )
        answer = await self.issuer.answer(request)
        root_id, public = self.custody.root()
        permit = verify(
            answer,
            Expected(
                {root_id: public},
                "l",
                end,
                "boot",
                f"secy-{end}",
                "ab" * 16,
                self.order[end],
                sample.violation_generation,
                self.now,
            ),
        )
        self.order[end] = permit.order
        self.closed[end] = permit.kind is PermitKind.CLOSE or (
            self.closed[end] and permit.kind is not PermitKind.REOPEN
        )
        return permit

    async def kinds(self):
        def read(conn):
            rows = conn.exec_driver_sql("SELECT frame FROM outbox_entry ORDER BY id").fetchall()
            return [decode_frame(row[0]).header_fields()["kind"] for row in rows]

        return await self.database.read(read)
