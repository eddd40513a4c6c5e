"""802.1AE frames in software: SecTAG, cipher suites, PN recovery, replay check. No sockets, no tables.

IEEE 802.1AE-2018: SecTAG 9.3-9.9, SL 9.7, MPDU 8.1; GCM-AES-128/-256 14.5/14.6 (IV = SCI || PN), GCM-AES-XPN
14.7/14.8 (IV = (SSCI || PN64) xor salt, PN recovery 10.6.2). A frame is Ethernet without FCS. SCI is always
present in the tag. Confidentiality offset is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keymgmt.derive import SAK_OCTETS, is_xpn
from keymgmt.errors import DriverRefused, FrameRefused

ETHERTYPE: Final = b"\x88\xe5"
TCI_V, TCI_ES, TCI_SC, TCI_SCB, TCI_E, TCI_C, AN_MASK = 0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x03
TAG_OCTETS: Final = 16  # EtherType 2, TCI/AN 1, SL 1, PN 4, SCI 8
HEADER_OCTETS: Final = 12 + TAG_OCTETS
ICV_OCTETS: Final = 16
SHORT: Final = 48  # secure data below this puts its length into SL (9.7)
LEAST_FRAME: Final = 60  # octets without FCS; a MAC pads shorter frames up to this
PN32_END: Final = 2**32
PN64_END: Final = 2**64

_TAG = Struct(">2sBBL8s")


@dataclass(slots=True)
class SaCipher:
    """The keyed cipher of one SA. Holds the key only inside the cipher object.

    Attributes:
        sci: 8 octets of the transmitting SC.
        ssci: 4 octets, XPN only.
        salt: 96 bits as an integer, XPN only.
        pn_end: first packet number that may not be used.
    """

    sci: bytes
    ssci: bytes
    xpn: bool
    pn_end: int
    salt: int = field(repr=False)
    aead: AESGCM = field(repr=False)

    @classmethod
    def make(cls, cipher: str, sak: bytes, salt: bytes, sci: bytes, ssci: int) -> SaCipher:
        """Key a cipher suite. Raises DriverRefused EINVAL for a wrong suite, key, salt or SSCI."""
        if SAK_OCTETS.get(cipher) != len(sak):
            raise DriverRefused("EINVAL", "the key's length does not fit the cipher suite")
        xpn = is_xpn(cipher)
        if xpn and (len(salt) != 12 or not 0 < ssci < PN32_END):
            raise DriverRefused("EINVAL", "an XPN suite needs a salt of 12 octets and an SSCI")
        return cls(
            sci,
            ssci.to_bytes(4, "big"),
            xpn,
            PN64_END if xpn else PN32_END,
            int.from_bytes(salt, "big") if xpn else 0,
            AESGCM(sak),
        )

    def nonce(self, pn: int) -> bytes:
        """Return the 96-bit IV of one packet number (14.5, 14.7)."""
        if self.xpn:
            return (int.from_bytes(self.ssci + pn.to_bytes(8, "big"), "big") ^ self.salt).to_bytes(12, "big")
        return self.sci + pn.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Tag:
    """A parsed SecTAG. `pn32` is what stands in the frame."""

    an: int
    encrypted: bool
    pn32: int
    sci: bytes


def protect(frame: bytes, cipher: SaCipher, an: int, pn: int, *, encrypt: bool) -> bytes:
    """Return the MPDU of a frame.

    Args:
        frame: Ethernet without FCS, at least 14 octets.
        cipher: the transmit SA's.
        an: its association number.
        pn: never used before under this key.
        encrypt: False leaves the data readable (integrity only).
    """
    data = frame[12:]
    tci = TCI_SC | an | (TCI_E | TCI_C if encrypt else 0)
    short = len(data) if len(data) < SHORT else 0
    head = frame[:12] + _TAG.pack(ETHERTYPE, tci, short, pn & 0xFFFFFFFF, cipher.sci)
    if encrypt:
        return head + cipher.aead.encrypt(cipher.nonce(pn), data, head)
    return head + data + cipher.aead.encrypt(cipher.nonce(pn), b"", head + data)


def parse(frame: bytes) -> Tag:
    """Return the tag of an MPDU, validated as in 9.3 to 9.9 and 10.6.

    Raises:
        FrameRefused: version, ES, SCB or no SCI, E unlike C, SL or length do not fit.
    """
    if len(frame) < HEADER_OCTETS + ICV_OCTETS + 2:
        raise FrameRefused("too short for a SecTAG, data and ICV")
    ethertype, tci, short, pn32, sci = _TAG.unpack_from(frame, 12)
    if ethertype != ETHERTYPE or tci & (TCI_V | TCI_ES | TCI_SCB) or not tci & TCI_SC:
        raise FrameRefused("not a version 0 SecTAG with an SCI")
    if bool(tci & TCI_E) != bool(tci & TCI_C):
        raise FrameRefused("E and C differ")
    data = len(frame) - HEADER_OCTETS - ICV_OCTETS
    if short >= SHORT or (not short and data < SHORT):
        raise FrameRefused("SL does not fit the frame's length")
    if short and (data < short or (data > short and len(frame) > LEAST_FRAME)):
        raise FrameRefused("SL does not fit the frame's length")
    return Tag(tci & AN_MASK, bool(tci & TCI_E), pn32, sci)


def validate(frame: bytes, tag: Tag, cipher: SaCipher, pn: int) -> bytes:
    """Return the frame of an MPDU whose ICV verifies under a recovered PN.

    Raises:
        FrameRefused: the ICV does not verify.
    """
    short = frame[15]
    end = HEADER_OCTETS + short if short else len(frame) - ICV_OCTETS  # padding follows the ICV of short data
    head, secure = frame[:HEADER_OCTETS], frame[HEADER_OCTETS : end + ICV_OCTETS]
    try:
        if tag.encrypted:
            data = cipher.aead.decrypt(cipher.nonce(pn), secure, head)
        else:
            data, icv = secure[:-ICV_OCTETS], secure[-ICV_OCTETS:]
            cipher.aead.decrypt(cipher.nonce(pn), icv, head + data)
    except InvalidTag:
        raise FrameRefused("ICV") from None
    return frame[:12] + data


def recover_pn(pn32: int, lowest_pn: int) -> int:
    """Return the 64-bit PN of an XPN frame (10.6.2).

    The upper half is that of the lowest acceptable PN, plus one when only that PN's lower half has its most
    significant bit set: so at most 2**31 - 1 frames may be lost in a row. The result may lie past the end of
    the number space; no frame with such a PN can be valid.
    """
    high = lowest_pn >> 32
    if lowest_pn & 0x8000_0000 and not pn32 & 0x8000_0000:
        high += 1
    return high << 32 | pn32


class ReplayWindow:
    """Next expected PN and lowest acceptable PN of a receive SA (10.6.2, 10.6.4).

    As the standard has it, a frame that is repeated *within* the window is accepted again; a window of 0
    accepts each frame once and in order.
    """

    __slots__ = ("lowest", "next_pn", "window")

    def __init__(self, window: int, next_pn: int = 1) -> None:
        self.window, self.next_pn = window, next_pn
        self.lowest = max(1, next_pn - window)

    def late(self, pn: int) -> bool:
        """Whether a PN is below the lowest acceptable one."""
        return pn < self.lowest

    def update(self, pn: int) -> None:
        """Account for a frame that was valid and not late."""
        if pn >= self.next_pn:
            self.next_pn = pn + 1
            self.lowest = max(self.lowest, self.next_pn - self.window)
