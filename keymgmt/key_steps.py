"""The key store's part of a rotation's steps: mint, wrap, destroy; and what it last said of each link.

The journal holds the intent before a call is made. A call whose answer was lost is made again: one more
version minted, one more wrap made, a destruction repeated; the next destruction covers earlier versions.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from keymgmt.custody import LinkKeys
from keymgmt.derive import associated_data
from keymgmt.errors import CouldNotTell, SaidNo
from keymgmt.rotation import Command, Outcome


class KeySteps:
    """Makes the commands that no agent makes. Calls block, so each runs in a worker thread."""

    def __init__(self, keys: LinkKeys) -> None:
        self._keys = keys
        self._away: dict[str, str] = {}

    @property
    def epoch(self) -> int:
        """The epoch under which the link keys stand."""
        return self._keys.epoch

    def away(self, link: str) -> str:
        """Why the last call for a link had no answer; empty when it had one."""
        return self._away.get(link, "")

    async def make(self, link: str, command: Command) -> Outcome | None:
        """The outcome of one command; None when the key store could not tell: it stays owed."""
        try:
            result = await asyncio.to_thread(self.call, link, command)
        except CouldNotTell as error:
            self._away[link] = str(error)
            return None
        except SaidNo as error:
            outcome = Outcome("refused", {}, str(error))
        else:
            outcome = Outcome("done", result)
        self._away.pop(link, None)
        return outcome

    def call(self, link: str, command: Command) -> dict[str, Any]:
        """Make the call and return what the step's judge reads.

        Raises:
            CustodyRefused: the key store said no.
            CustodyUnavailable: no answer.
        """
        if command.kind == "mint":
            return {"version": self._keys.rotate(link)}
        if command.kind == "wrap":
            wrapped = self._keys.wrapped(link, associated_data(command.params["ad"]))
            return {"ciphertext": wrapped.ciphertext, "version": wrapped.version}
        return asdict(self._keys.destroy(link, command.params["version"]))
