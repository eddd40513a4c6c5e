"""Ports of gate and ledger onto the key store: permit key, published checkpoints, sessions per role."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from evidence.errors import MirrorUnavailable
from keymgmt.bao import BaoSession
from keymgmt.custody_openbao import OpenBaoSigner, OpenBaoStore
from keymgmt.errors import CustodyRefused, KeymgmtError
from keymgmt.permit import key_id_of
from policy_engine.embedded.contact import Contact

PERMIT_ROOT: Final = "permit-root"
SIGNER_PATH: Final = "permits/signer"
CHECKPOINT_PATH: Final = "ledger/checkpoint"


class PermitStore:
    """`gate.signer.PermitCustody` over the role `gate`."""

    def __init__(self, session: BaoSession) -> None:
        self._root = OpenBaoSigner(session, PERMIT_ROOT)
        self._store = OpenBaoStore(session)

    def root(self) -> tuple[str, bytes]:
        """(key id, public key) of `permit-root`."""
        public = self._root.public_key()
        return key_id_of(public), public

    def sign(self, octets: bytes) -> bytes:
        """Sign with `permit-root`."""
        return self._root.sign(octets)

    def load(self) -> tuple[Mapping[str, str] | None, int]:
        """The sealed permit key and its version."""
        found = self._store.get(SIGNER_PATH)
        return (None, 0) if found is None else found

    def store(self, value: Mapping[str, str], version: int) -> None:
        """Write the sealed permit key if nobody wrote in between."""
        self._store.put(SIGNER_PATH, value, expected=version)


class CheckpointMirror:
    """`evidence.sequencer.Mirror`: the last published checkpoint, in OpenBao's KV."""

    def __init__(self, session: BaoSession, contact: Contact) -> None:
        self._store = OpenBaoStore(session)
        self._contact = contact
        self._version: int | None = None

    def read(self) -> bytes | None:
        """The last published note.

        Raises:
            MirrorUnavailable: The key store did not answer.
        """
        try:
            found = self._contact.call(lambda: self._store.get(CHECKPOINT_PATH))
        except KeymgmtError as error:
            raise MirrorUnavailable(f"published checkpoint: {error}") from None
        if found is None:
            self._version = 0
            return None
        document, self._version = found
        return base64.b64decode(str(document["note"]))

    def publish(self, note: bytes) -> None:
        """Keep a note as the last published one, if nobody published in between.

        Raises:
            MirrorUnavailable: It may not have been kept.
        """
        try:
            if self._version is None:
                self.read()
            document = {"note": base64.b64encode(note).decode()}
            expected = self._version or 0
            self._version = self._contact.call(
                lambda: self._store.put(CHECKPOINT_PATH, document, expected=expected)
            )
        except CustodyRefused as error:
            self._version = None
            raise MirrorUnavailable(f"somebody else published a checkpoint: {error}") from None
        except KeymgmtError as error:
            self._version = None
            raise MirrorUnavailable(f"published checkpoint: {error}") from None
