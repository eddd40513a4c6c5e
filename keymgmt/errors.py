"""The error tree of key management. "Said no" and "could not tell" are different classes.

::

    KeymgmtError
    ├── SaidNo                   an answer was given, and it was no
    │   ├── CustodyRefused       the key store refused the call (version, request)
    │   │   └── RightsRefused    the call is outside the role's rights, or its token is dead
    │   ├── LinkRefused          a link or its profile cannot be keyed safely as declared
    │   ├── RotationRefused      a rotation may not start now (one is open here or on the partner)
    │   ├── StaleLease           this conductor no longer leads: its write changed nothing
    │   ├── MessageRefused       an agent's message is not of the agreed form
    │   ├── AgentUnknown         the certificate names no agent of this estate
    │   ├── DerivationRefused    SCIs, SSCIs, cipher or data key cannot give two sound SAs
    │   ├── PermitRefused        a permit does not verify, or is not for this end, boot or pull
    │   ├── SampleRefused        a sample's signature does not verify
    │   ├── OperationRefused     an agent refuses an operation: fence, time to act, plan, read-back
    │   ├── FrameRefused         octets that are no valid MACsec frame for this SecY
    │   └── DriverRefused        the data plane refused a command (busy, absent, no such key)
    ├── CouldNotTell             no answer, or one that proves nothing
    │   ├── CustodyUnavailable   the key store is sealed, away or answered with a fault of its own
    │   ├── OpenBaoNotReady      the embedded key store did not become active in time
    │   ├── EpochMismatch        database and key store disagree about the epoch: nothing is issued
    │   ├── ControlUnavailable   the agents' listener does not answer
    │   └── DriverUnavailable    the data plane does not answer
    │       └── DriverUnreadable it answers in a form that this program does not read
    └── IllegalStep              a caller's bug: an outcome for a step that is not open

No message holds a key, token, ciphertext or response body of the key store.
"""

from __future__ import annotations


class KeymgmtError(Exception):
    """Root of the tree.

    Attributes:
        fix: What the reader can do about it; empty when nothing is known.
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class SaidNo(KeymgmtError):  # noqa: N818 - named for what it means, see the tree
    """An answer was given, and it was no."""


class CustodyRefused(SaidNo):
    """The key store refused the call."""


class RightsRefused(CustodyRefused):
    """The call is outside the role's rights, or its token is dead."""


class LinkRefused(SaidNo):
    """A link cannot be keyed safely as declared."""


class RotationRefused(SaidNo):
    """A rotation may not start now."""


class StaleLease(SaidNo):
    """This conductor no longer leads: its write changed nothing."""


class MessageRefused(SaidNo):
    """An agent's message is not of the agreed form."""


class AgentUnknown(SaidNo):
    """The certificate names no agent of this estate."""


class DerivationRefused(SaidNo):
    """SCIs, SSCIs, cipher or data key cannot give two sound SAs."""


class PermitRefused(SaidNo):
    """A permit does not verify, or is not for this end, boot or pull."""


class SampleRefused(SaidNo):
    """A sample's signature does not verify."""


class OperationRefused(SaidNo):
    """An agent refuses an operation: nothing was touched.

    Attributes:
        code: Short constant that the acknowledgement carries.
    """

    def __init__(self, code: str, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.code = code


class FrameRefused(SaidNo):
    """Octets that are no valid MACsec frame for this SecY."""


class DriverRefused(SaidNo):
    """The data plane refused a command.

    Attributes:
        code: Linux errno name: EINVAL (malformed), ENOENT, ENODEV, EBUSY, EEXIST, EPERM, ESTALE (it was meant
            for another SecY lifetime).
    """

    def __init__(self, code: str, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.code = code


class CouldNotTell(KeymgmtError):  # noqa: N818
    """No answer, or one that proves nothing."""


class CustodyUnavailable(CouldNotTell):
    """The key store is sealed, away or answered with a fault of its own."""


class OpenBaoNotReady(CouldNotTell):
    """The embedded key store did not become active in time."""


class EpochMismatch(CouldNotTell):
    """Database and key store disagree about the epoch."""


class ControlUnavailable(CouldNotTell):
    """The agents' listener does not answer."""


class DriverUnavailable(CouldNotTell):
    """The data plane does not answer."""


class DriverUnreadable(DriverUnavailable):
    """The data plane answers in a form that this program does not read: it is of another version."""


class IllegalStep(KeymgmtError):  # noqa: N818
    """A caller's bug: an outcome for a step that is not open."""
