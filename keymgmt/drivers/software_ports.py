"""Ports of the software driver: UDP as a wire, a unix socket for control, the clock. Knows no keys.

One datagram is one Ethernet frame without FCS.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

RECEIVE_BUFFER: Final = 4 * 1024 * 1024  # octets
MAX_FRAME: Final = 65_535
MAX_MESSAGE: Final = 65_536  # octets of one control command
Address = tuple[str, int]


def boottime_ns() -> int:
    """Return CLOCK_BOOTTIME, which goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def udp_port(bind: Address, peer: Address) -> socket.socket:
    """Return a connected, non-blocking UDP socket with a large receive buffer."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (getattr(socket, "SO_RCVBUFFORCE", 33), socket.SO_RCVBUF):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER)
            break
        except PermissionError:
            continue
    sock.bind(bind)
    sock.connect(peer)
    sock.setblocking(False)
    return sock


def send_quietly(sock: socket.socket, frame: bytes) -> None:
    """Send one frame; a neighbour that is away or a full buffer loses it, as on a wire."""
    try:
        sock.send(frame)
    except (ConnectionRefusedError, BlockingIOError):
        # The first may report an earlier frame's refusal: this one was not sent, so try once more.
        try:
            sock.send(frame)
        except OSError:
            return
    except OSError:  # too long, no route, a packet filter
        return


def control_socket(path: str) -> socket.socket:
    """Return a listening SEQPACKET socket that only this user can reach; takes over a dead one's path."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    Path(path).unlink(missing_ok=True)
    mask = os.umask(0o177)
    try:
        sock.bind(path)
    finally:
        os.umask(mask)
    sock.listen(8)
    sock.setblocking(False)
    return sock


def accepted(listener: socket.socket) -> socket.socket | None:
    """Accept one client of this user, non-blocking, so that one who never reads stops nobody; else None."""
    try:
        peer, _ = listener.accept()
    except OSError:
        return None
    if peer_uid(peer) != os.geteuid():
        peer.close()
        return None
    peer.setblocking(False)
    return peer


def peer_uid(sock: socket.socket) -> int:
    """Return the user id of a unix socket's peer (SO_PEERCRED)."""
    creds = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", creds)[1])


def addresses(doc: Mapping[str, Any]) -> tuple[Address, Address]:
    """Read {"bind": [host, port], "peer": [host, port]}."""
    (bind_host, bind_port), (peer_host, peer_port) = doc["bind"], doc["peer"]
    return (bind_host, int(bind_port)), (peer_host, int(peer_port))


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return UDP ports that were free a moment ago; all are held until the last is found."""
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for sock in socks:
            sock.bind((host, 0))
        return [sock.getsockname()[1] for sock in socks]
    finally:
        for sock in socks:
            sock.close()
