"""Checkpoints: the public form of signed notes, strict decoding, and one family of errors."""

from __future__ import annotations

import base64
import contextlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from evidence.checkpoint import (
    Checkpoint,
    LocalSigner,
    VerifierKey,
    open_checkpoint,
    parse_checkpoint,
    parse_note,
    sign_checkpoint,
    verifier_of,
)
from evidence.errors import CheckpointInvalid, SignatureInvalid

# The example of the C2SP signed-note format's first implementation (golang.org/x/mod/sumdb/note).
PUBLIC_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PUBLIC_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
).encode()

SIGNER = LocalSigner("sluicegate.io/test", Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEY = verifier_of(SIGNER)
CHECKPOINT = Checkpoint("sluicegate.io/ledger/1", 258, bytes(range(32)))
NOTE = sign_checkpoint(CHECKPOINT, SIGNER)


def note(text: str, *signers: LocalSigner) -> bytes:
    """Sign any text, right or wrong."""
    lines = []
    for signer in signers:
        key = verifier_of(signer)
        raw = base64.b64encode(key.key_id + signer.sign(text.encode())).decode()
        lines.append(f"— {signer.name} {raw}\n")
    return f"{text}\n{''.join(lines)}".encode()


def test_reads_the_public_example():
    key = VerifierKey.parse(PUBLIC_KEY)
    text, signatures = parse_note(PUBLIC_NOTE)
    assert PUBLIC_KEY == key.vkey()
    assert [("PeterNeumann", key.key_id)] == [one[:2] for one in signatures]
    key.verify(text, signatures[0][2])


def test_writes_the_form_of_c2sp():
    lines = NOTE.decode().split("\n")
    assert ["sluicegate.io/ledger/1", "258", base64.b64encode(bytes(range(32))).decode(), ""] == lines[:4]
    assert lines[4].startswith("— sluicegate.io/test ")
    assert [""] == lines[5:]


@given(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32))
def test_signs_and_opens(size, root):
    checkpoint = Checkpoint("sluicegate.io/ledger/1", size, root)
    assert checkpoint == open_checkpoint(sign_checkpoint(checkpoint, SIGNER), [KEY], checkpoint.origin)


def test_every_single_bit_flip_is_refused():
    for bit in range(len(NOTE) * 8):
        changed = bytearray(NOTE)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointInvalid):
            open_checkpoint(bytes(changed), [KEY])


def test_every_truncation_and_any_tail_is_refused():
    for size in range(len(NOTE)):
        with pytest.raises(CheckpointInvalid):
            open_checkpoint(NOTE[:size], [KEY])
    for tail in (b"\n", b" ", b"x", b"\n\n", NOTE):
        with pytest.raises(CheckpointInvalid):
            open_checkpoint(NOTE + tail, [KEY])


@given(st.binary(max_size=300))
def test_garbage_raises_our_own_error_only(data):
    for run in (
        lambda: open_checkpoint(data, [KEY]),
        lambda: parse_checkpoint(data),
        lambda: parse_note(data),
    ):
        with contextlib.suppress(CheckpointInvalid):
            run()


@given(st.text(max_size=120))
def test_garbage_keys_raise_our_own_error_only(text):
    for candidate in (text, f"name+{text}", f"name+{KEY.key_id.hex()}+{text}"):
        with pytest.raises(CheckpointInvalid):
            VerifierKey.parse(candidate)


@pytest.mark.parametrize(
    "text",
    [
        "\n1\n{root}\n",
        " origin\n1\n{root}\n",
        "origin\n01\n{root}\n",
        "origin\n+1\n{root}\n",
        "origin\n-1\n{root}\n",
        "origin\n١\n{root}\n",
        "origin\n9223372036854775808\n{root}\n",
        "origin\n" + "9" * 5000 + "\n{root}\n",
        "origin\n1\n{root}\nextension\n",
        "origin\n1\n{root}",
        "origin\n1\n{short}\n",
        "origin\n1\n{stray}\n",
        "origin\n1\n{unpadded}\n",
        "origin\n1\n\n",
    ],
)
def test_other_texts_are_refused_even_when_signed(text):
    root = base64.b64encode(bytes(32)).decode()
    filled = text.format(
        root=root,
        short=base64.b64encode(bytes(31)).decode(),
        stray=root[:-2] + "B=",
        unpadded=root.rstrip("="),
    )
    with pytest.raises(CheckpointInvalid):
        open_checkpoint(note(filled, SIGNER), [KEY])


def test_other_signatures_are_ignored_but_one_accepted_key_must_have_signed():
    stranger = LocalSigner("stranger")
    both = note(CHECKPOINT.text().decode(), stranger, SIGNER)
    assert CHECKPOINT == open_checkpoint(both, [KEY])
    for keys in ([], [VerifierKey(KEY.name, bytes(31) + b"\1")], [VerifierKey("other", KEY.public)]):
        with pytest.raises(SignatureInvalid):
            open_checkpoint(both, keys)


def test_a_repeated_signature_is_refused():
    with pytest.raises(SignatureInvalid, match="twice"):
        open_checkpoint(note(CHECKPOINT.text().decode(), SIGNER, SIGNER), [KEY])


def test_too_many_signatures_and_too_long_notes_are_refused():
    with pytest.raises(CheckpointInvalid):
        open_checkpoint(note(CHECKPOINT.text().decode(), *[LocalSigner(f"s{n}") for n in range(17)]), [KEY])
    with pytest.raises(CheckpointInvalid):
        open_checkpoint(NOTE + b"x" * 70_000, [KEY])


def test_another_log_is_refused():
    with pytest.raises(CheckpointInvalid, match="another log"):
        open_checkpoint(NOTE, [KEY], "sluicegate.io/ledger/2")


def test_a_signer_that_signs_wrongly_is_found_before_its_note_is_used():
    class Wrong(LocalSigner):
        def sign(self, message: bytes) -> bytes:
            return super().sign(message + b"!")

    with pytest.raises(SignatureInvalid):
        sign_checkpoint(CHECKPOINT, Wrong("wrong"))


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "\ud800"])
def test_names_that_would_break_a_signature_line_are_refused(name):
    with pytest.raises(CheckpointInvalid):
        VerifierKey(name, bytes(32))
