"""Reading a review's body: bounded in size, in time, and over all bodies held at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from policy_engine.errors import BadReview
from policy_engine.limits import Limits

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyReader:
    """Reads bodies; knows how many octets of large ones are held now."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    def check_declared(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuse by Content-Length alone, without reading an octet.

        Raises:
            BadReview: 413, or 400 when the length is no number.
        """
        for name, value in headers:
            if name == b"content-length":
                if not value.isdigit():
                    raise BadReview("Content-Length is not a number")
                if len(value) > 12 or int(value) > self._limits.review_body_bytes:
                    raise self._too_large()

    async def read(self, receive: Receive) -> bytes | bytearray:
        """The whole body. The usual one has arrived with its headers and is not copied again.

        Raises:
            BadReview: 413 for too large, 408 for too slow, 400 when the peer went away, 429 when too many
                octets of other bodies are held.
        """
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")
            if len(body) > self._limits.review_body_bytes:
                raise self._too_large()
            return body
        try:
            async with asyncio.timeout(self._limits.review_body_s):
                return await self._rest(message, receive)
        except TimeoutError:
            raise BadReview("the body came too slowly", code=408) from None

    async def _rest(self, message: MutableMapping[str, Any], receive: Receive) -> bytearray:
        body = bytearray()
        try:
            while True:
                if message["type"] != "http.request":
                    raise BadReview("the peer went away before the body was complete")
                chunk = message.get("body", b"")
                body += chunk
                self._held += len(chunk)
                if len(body) > self._limits.review_body_bytes:
                    raise self._too_large()
                if self._held > self._limits.body_bytes_in_flight:
                    raise BadReview("too many large bodies at once", code=429)
                if not message.get("more_body", False):
                    return body
                message = await receive()
        finally:
            self._held -= len(body)

    def _too_large(self) -> BadReview:
        return BadReview(f"a review is limited to {self._limits.review_body_bytes} octets", code=413)
