"""Every error that the control plane raises on purpose.

"Said no" (the input or the caller is wrong) and "could not tell" (we failed to find out) are different
branches, because callers must treat them differently: the first is an answer, the second denies and alarms.
Each error may carry `fix`: what the reader should do next, in one sentence.

    PolicyEngineError
    +-- SaidNo                      the input is wrong; repeating it changes nothing
    |   +-- ResourceErrors          declared state is invalid (holds every Problem found)
    |   +-- UsageError              a command was called wrongly
    |   +-- ObjectUnreadable        a manifest given to `facts` or `check --objects` cannot be read
    |   +-- SettingsError           a setting is unknown or out of range; names its source
    |   +-- StateFolderBusyError    another `up` runs on this state folder
    |   +-- BundleRefused           a policy bundle is damaged, too large or not the trusted one
    |   +-- BuildRefused            the policy sources do not build, or differ from the committed bundle
    |   +-- Unauthenticated         no credential, or none that is known and valid now
    |   +-- Forbidden               a known caller asks for what is not granted to it
    |   +-- NotFound                no such thing within the caller's reach
    |   +-- InvalidGrant            a grant or token that must not be issued
    |   +-- IdentityConfigError     credentials of clusters that cannot be told apart
    |   +-- TlsMaterialError        certificate, key and authorities that cannot serve together
    |   +-- BadBody                 a body that is too large, too slow, cut off or one too many
    |   +-- BadReview               a body that is no AdmissionReview
    +-- CouldNotTell                we failed to find out; callers fail closed
        +-- EngineNoResult          an engine gave no complete result: the denial engine.no_result
        +-- ToolchainError          OPA could not be built or started
        +-- StartError              a part of the embedded system did not start
        +-- LookupUnavailable       the inventory did not answer in time
        +-- DecisionLate            a decision was not durable within its deadline

Others add a subclass below its branch and a line in this drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PolicyEngineError(Exception):
    """Root of the tree. `str()` is for people; it never holds a key, a token or the value of a variable."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class SaidNo(PolicyEngineError):  # noqa: N818 - the branch names an answer, its leaves are the errors
    """The input or the caller is wrong."""


class CouldNotTell(PolicyEngineError):  # noqa: N818 - see above
    """We failed to find out; the caller must fail closed."""


class UsageError(SaidNo):
    """A command was called with arguments that make no sense together."""


class ObjectUnreadable(SaidNo):
    """A manifest cannot be read as a Kubernetes object."""


class SettingsError(SaidNo):
    """A setting is unknown, unreadable or out of range."""


class StateFolderBusyError(SaidNo):
    """The state folder is in use by another `up`."""


class Unauthenticated(SaidNo):
    """No credential, or none that is known and valid now. `reason` is a bounded word for counters."""

    def __init__(self, message: str, *, reason: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.reason = reason


class Forbidden(SaidNo):
    """A known caller asks for what is not granted to it. `reason` is a bounded word for counters."""

    def __init__(self, message: str, *, reason: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.reason = reason


class NotFound(SaidNo):
    """No such thing within the caller's reach; absent and foreign have the same text."""


class InvalidGrant(SaidNo):
    """A grant or token that must not be issued."""


class IdentityConfigError(SaidNo):
    """Credentials of clusters cannot be told apart or cannot be read."""


class TlsMaterialError(SaidNo):
    """Certificate, key and client authorities cannot serve together."""


class BadBody(SaidNo):
    """A body that could not be read within its bounds. `code` is the status of HTTP that says which."""

    def __init__(self, message: str, *, code: int, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.code = code


class BadReview(SaidNo):
    """A body is no AdmissionReview. `uid` is that of the review where it could be read.

    `status` is that of HTTP: 200 where a review can be answered with a refusal, 400 where none was read.
    """

    def __init__(self, message: str, *, uid: str = "", status: int = 0, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.uid = uid
        self.status = status or (200 if uid else 400)


class BundleRefused(SaidNo):
    """A policy bundle is damaged, too large, or not the one that is trusted."""


class BuildRefused(SaidNo):
    """The policy sources do not build, fail their cases, or differ from the committed bundle."""


class EngineNoResult(CouldNotTell):
    """An engine gave no complete result that is bound to this policy and this input."""


class ToolchainError(CouldNotTell):
    """OPA could not be built, found or started."""


class StartError(CouldNotTell):
    """A part of the embedded system did not start in time."""


class LookupUnavailable(CouldNotTell):
    """The inventory could not say whether an object exists."""


class DecisionLate(CouldNotTell):
    """A decision was not durable within its deadline."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file of declared state.

    Attributes:
        file: path as the user gave it, relative to the directory that was read.
        line: 1-based; 0 when the problem is about the whole file.
        path: field path such as `spec.endpoints[1].sci`; empty for a whole document.
        message: what is wrong.
        fix: what to write instead; may be empty.
    """

    file: str
    line: int
    path: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        at = f" {self.path}:" if self.path else ""
        return f"{where}:{at} {self.message}" + (f" ({self.fix})" if self.fix else "")

    def as_dict(self) -> dict[str, str | int]:
        """The same for machines: `{file, line, path, message, fix}`."""
        return {
            "file": self.file,
            "line": self.line,
            "path": self.path,
            "message": self.message,
            "fix": self.fix,
        }


class ResourceErrors(SaidNo):
    """Declared state is invalid. Holds every problem found, sorted by file and line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line, p.path, p.message)))
        count = len(self.problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the declared state")
