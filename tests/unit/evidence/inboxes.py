"""An inbox that keeps what is committed in lists."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.errors import PutBefore
from evidence.outbox import Inbox
from evidence.records import Draft


class ListInbox(Inbox):
    """Leaves out durability."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.works: list[str] = []

    def has(self, work: str) -> bool:
        return work in self.works

    def commit(self, drafts: Sequence[Draft], work: str) -> None:
        if self.has(work):
            raise PutBefore("before")
        self.works.append(work)
        self.drafts += drafts
