"""Reading a body: bounded in size, in time, and over all bodies that are being read at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from policy_engine.errors import BadBody

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyReader:
    """Reads bodies; knows how many octets of large ones are held now.

    Args:
        octets: Of one body.
        seconds: From its headers to its last octet.
        in_flight: Octets of all bodies being read.
    """

    def __init__(self, octets: int, seconds: float, in_flight: int) -> None:
        self._octets, self._seconds, self._in_flight = octets, seconds, in_flight
        self._held = 0

    def check_declared(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuse by Content-Length alone, without reading an octet.

        Raises:
            BadBody: 413, or 400 when the length is no number.
        """
        for name, value in headers:
            if name == b"content-length":
                if not value.isdigit():
                    raise BadBody("Content-Length is not a number", code=400)
                if len(value) > 12 or int(value) > self._octets:
                    raise self._too_large()

    async def read(self, receive: Receive) -> bytes | bytearray:
        """The whole body. The usual one has arrived with its headers and is not copied again.

        Raises:
            BadBody: 413 for too large, 408 for too slow, 400 when the peer went away, 429 when too many
                octets of other bodies are held.
        """
        try:
            async with asyncio.timeout(self._seconds):
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body", False):
                    body: bytes = message.get("body", b"")
                    if len(body) > self._octets:
                        raise self._too_large()
                    return body
                return await self._rest(message, receive)
        except TimeoutError:
            raise BadBody("the body came too slowly", code=408) from None

    async def _rest(self, message: MutableMapping[str, Any], receive: Receive) -> bytearray:
        body = bytearray()
        try:
            while True:
                if message["type"] != "http.request":
                    raise BadBody("the peer went away before the body was complete", code=400)
                chunk = message.get("body", b"")
                body += chunk
                self._held += len(chunk)
                if len(body) > self._octets:
                    raise self._too_large()
                if self._held > self._in_flight:
                    raise BadBody("too many large bodies at once", code=429)
                if not message.get("more_body", False):
                    return body
                message = await receive()
        finally:
            self._held -= len(body)

    def _too_large(self) -> BadBody:
        return BadBody(f"a body is limited to {self._octets} octets", code=413)
