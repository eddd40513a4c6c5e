"""A SecY in software: SCs, SAs, their counters, and what may be changed when.

Behaves as the Linux macsec device where that device is safe and refuses where it is not (notes in brackets):
AN in use -> EBUSY, deleting the SA in use -> EBUSY, unknown receive SC -> ENODEV, wrong key length -> EINVAL,
selecting an AN without that key id -> ENOENT [Linux accepts it and goes silent], a key id seen before in this
SecY lifetime -> EEXIST [Linux reinstalls it, which is nonce reuse]. Packet numbers live here and nowhere
else: no (key, PN) pair is used twice, and a spent PN stops the SA. Validation is strict. One thread only.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from keymgmt.checks import is_sci
from keymgmt.derive import SAK_OCTETS, is_xpn
from keymgmt.drivers import SaInstall
from keymgmt.drivers.software_frames import (
    ETHERTYPE,
    ReplayWindow,
    SaCipher,
    parse,
    protect,
    recover_pn,
    validate,
)
from keymgmt.errors import DriverRefused, FrameRefused

ETHERTYPE_AT: Final = slice(12, 14)
MOST_WINDOW: Final = {False: 2**32 - 1, True: 2**30 - 1}  # by XPN (802.1AEbw)
TX_SA = ("OutPktsProtected", "OutPktsEncrypted")
TX_SC = (*TX_SA, "OutOctetsProtected", "OutOctetsEncrypted")
RX_SA = ("InPktsOK", "InPktsNotValid", "InPktsNotUsingSA")
RX_SC = (*RX_SA, "InPktsLate", "InPktsUnchecked", "InOctetsValidated", "InOctetsDecrypted")
SECY = ("OutPktsUntagged", "InPktsNoTag", "InPktsUntagged", "InPktsBadTag", "InPktsNoSCI", "InPktsUnknownSCI")


@dataclass(frozen=True, slots=True)
class SecyConfig:
    """One SecY: its SCI, the one peer it talks to (exactly two members), its suite and replay window."""

    sci: str
    peer_sci: str
    cipher: str
    replay_window: int = 64
    max_sa_per_sc: int = 4


class TxSa:
    """A transmit SA; `next_pn` only ever rises. `confirmed`: a select of it was, so one may go back to it."""

    __slots__ = ("check", "cipher", "confirmed", "key_id", "next_pn", "stats")

    def __init__(self, cipher: SaCipher, key_id: str, check: str) -> None:
        self.cipher, self.key_id, self.check, self.next_pn = cipher, key_id, check, 1
        self.confirmed = False
        self.stats = dict.fromkeys(TX_SA, 0)


class RxSa:
    """A receive SA with its replay window."""

    __slots__ = ("check", "cipher", "key_id", "replay", "stats")

    def __init__(self, cipher: SaCipher, key_id: str, check: str, window: int) -> None:
        self.cipher, self.key_id, self.check = cipher, key_id, check
        self.replay = ReplayWindow(window)
        self.stats = dict.fromkeys(RX_SA, 0)


class SecY:
    """One SecY lifetime.

    Attributes:
        secy_id: fresh at every start: another value means that all keys are gone.
        protect, encrypt: configuration; only fault injection ever turns one off.
        tx_dropped: frames not sent for want of a usable transmit SA.
    """

    def __init__(self, config: SecyConfig) -> None:
        _refuse_config(config)
        self.config = config
        self.secy_id = secrets.token_hex(16)
        self.protect = self.encrypt = True
        self.validate = "strict"
        self.encoding_an: int | None = None
        self.tx: dict[int, TxSa] = {}
        self.rx: dict[int, RxSa] = {}
        self.tx_dropped = 0
        self.secy_stats = dict.fromkeys(SECY, 0)
        self.tx_stats = dict.fromkeys(TX_SC, 0)
        self.rx_stats = dict.fromkeys(RX_SC, 0)
        self._peer = bytes.fromhex(config.peer_sci)
        self._seen_tx: set[str] = set()
        self._seen_rx: set[str] = set()

    # --- keys

    def add_tx(self, sa: SaInstall) -> str:
        """Install a transmit SA, not selected; return the check value held beside it."""
        self._refuse(sa, self.tx, self._seen_tx, self.config.sci)
        cipher = SaCipher.make(sa.cipher, sa.sak, sa.salt, bytes.fromhex(sa.sci), sa.ssci)
        self._seen_tx.add(sa.key_id)
        self.tx[sa.an] = TxSa(cipher, sa.key_id, sa.check)
        return sa.check

    def add_rx(self, sa: SaInstall) -> str:
        """Install a receive SA, enabled; return the check value held beside it."""
        self._refuse(sa, self.rx, self._seen_rx, self.config.peer_sci)
        cipher = SaCipher.make(sa.cipher, sa.sak, sa.salt, bytes.fromhex(sa.sci), sa.ssci)
        self._seen_rx.add(sa.key_id)
        self.rx[sa.an] = RxSa(cipher, sa.key_id, sa.check, self.config.replay_window)
        return sa.check

    def select(self, an: int, key_id: str) -> int | None:
        """Transmit under an installed SA; return the AN of before."""
        if (sa := self.tx.get(an)) is None or sa.key_id != key_id:
            raise DriverRefused("ENOENT", "no transmit SA with this AN and key id")
        was, self.encoding_an = self.encoding_an, an
        return was

    def delete_tx(self, an: int, key_id: str) -> Mapping[str, int]:
        """Delete a transmit SA by (AN, key id); return its last counters."""
        if (sa := self.tx.get(an)) is None or sa.key_id != key_id:
            raise DriverRefused("ENOENT", "no transmit SA with this AN and key id")
        if an == self.encoding_an:
            raise DriverRefused("EBUSY", "the SA is in use for transmit")
        del self.tx[an]
        return sa.stats | {"next_pn": sa.next_pn}

    def delete_rx(self, an: int, key_id: str) -> Mapping[str, int]:
        """Disable and delete a receive SA by (AN, key id); return its last counters."""
        if (sa := self.rx.get(an)) is None or sa.key_id != key_id:
            raise DriverRefused("ENOENT", "no receive SA with this AN and key id")
        del self.rx[an]
        return sa.stats | {"lowest_pn": sa.replay.lowest}

    def _refuse(self, sa: SaInstall, table: Mapping[int, object], seen: set[str], sci: str) -> None:
        if sa.sci != sci:
            raise DriverRefused("ENODEV", "no secure channel with this SCI")
        if sa.cipher != self.config.cipher:
            raise DriverRefused("EINVAL", "the cipher suite of a live SecY cannot change")
        if not 0 <= sa.an < self.config.max_sa_per_sc:
            raise DriverRefused("EINVAL", f"AN beyond the {self.config.max_sa_per_sc} that this SecY has")
        if sa.an in table:
            raise DriverRefused("EBUSY", "the AN is in use")
        if sa.key_id in seen:
            raise DriverRefused("EEXIST", "a key is never installed twice in one SecY lifetime")

    # --- frames

    def send(self, frame: bytes) -> bytes | None:
        """Return what goes to the wire for a frame of the controlled port, None when it is dropped."""
        if not self.protect:
            self.secy_stats["OutPktsUntagged"] += 1
            return frame
        an = self.encoding_an
        sa = self.tx.get(an) if an is not None else None
        if an is None or sa is None or sa.next_pn >= sa.cipher.pn_end:
            self.tx_dropped += 1
            return None
        pn = sa.next_pn
        sa.next_pn = pn + 1  # spent before it is used
        out = protect(frame, sa.cipher, an, pn, encrypt=self.encrypt)
        kind = "Encrypted" if self.encrypt else "Protected"
        sa.stats["OutPkts" + kind] += 1
        self.tx_stats["OutPkts" + kind] += 1
        self.tx_stats["OutOctets" + kind] += len(frame) - 12
        return out

    def receive(self, frame: bytes) -> bytes | None:
        """Return the frame for the controlled port, None when it is dropped (10.6, strict)."""
        if frame[ETHERTYPE_AT] != ETHERTYPE:
            self.secy_stats["InPktsNoTag"] += 1
            return None
        try:
            tag = parse(frame)
        except FrameRefused:
            self.secy_stats["InPktsBadTag"] += 1
            return None
        if tag.sci != self._peer:
            self.secy_stats["InPktsNoSCI"] += 1
            return None
        sa = self.rx.get(tag.an)
        if sa is None:
            self.rx_stats["InPktsNotUsingSA"] += 1
            return None
        if not tag.pn32 and not sa.cipher.xpn:  # figure 10-5
            self.secy_stats["InPktsBadTag"] += 1
            return None
        pn = recover_pn(tag.pn32, sa.replay.lowest) if sa.cipher.xpn else tag.pn32
        if sa.replay.late(pn) or pn >= sa.cipher.pn_end:
            self.rx_stats["InPktsLate"] += 1
            return None
        try:
            out = validate(frame, tag, sa.cipher, pn)
        except FrameRefused:
            self.rx_stats["InPktsNotValid"] += 1
            sa.stats["InPktsNotValid"] += 1
            return None
        sa.replay.update(pn)
        sa.stats["InPktsOK"] += 1
        self.rx_stats["InPktsOK"] += 1
        self.rx_stats["InOctetsDecrypted" if tag.encrypted else "InOctetsValidated"] += len(out) - 12
        return out

    # --- read-back

    def counters(self) -> dict[str, int]:
        """Return all counters, flat, with scope prefixes."""
        flat = {f"secy.{name}": value for name, value in self.secy_stats.items()}
        flat |= {f"txsc.{name}": value for name, value in self.tx_stats.items()}
        flat |= {f"rxsc.{name}": value for name, value in self.rx_stats.items()}
        for an, tx in self.tx.items():
            flat |= {f"txsa.{an}.{name}": value for name, value in tx.stats.items()}
        for an, rx in self.rx.items():
            flat |= {f"rxsa.{an}.{name}": value for name, value in rx.stats.items()}
        flat["port.TxDropped"] = self.tx_dropped
        return flat


def _refuse_config(config: SecyConfig) -> None:
    if not (is_sci(config.sci) and is_sci(config.peer_sci)):
        raise DriverRefused("EINVAL", "an SCI is 16 lower-case hex digits")
    if config.sci == config.peer_sci:
        raise DriverRefused("EINVAL", "the receive SC has this SecY's own SCI")
    if config.cipher not in SAK_OCTETS:
        raise DriverRefused("EINVAL", f"unknown cipher suite; known: {', '.join(SAK_OCTETS)}")
    most = MOST_WINDOW[is_xpn(config.cipher)]
    if not 0 <= config.replay_window <= most:
        raise DriverRefused("EINVAL", f"a replay window of this suite is 0 to {most}")
    if not 1 <= config.max_sa_per_sc <= 4:
        raise DriverRefused("EINVAL", "a secure channel has 1 to 4 SAs")
