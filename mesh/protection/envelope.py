"""The form of encrypted values in records, and their encryption: AES-256-GCM.

Theory of operation
1. A record with encrypted parts has the header `mesh-protection`, one for each key: version, kind, key id, the wrapped
   data key, and the salt of its batch. So each record can be read by itself: compaction and mirrors put records into
   other batches. The header is equal for all records of a batch, so compression nearly removes it.
2. A whole value becomes `count, ciphertext, tag`. A field becomes the text `mesh:1:KEY ID:` and the same in base64.
3. Each batch has a key of its own: HKDF-SHA-256 of a data key and 32 random bytes, the salt. The nonce is the count of
   the parts that were encrypted in this batch, so no nonce comes twice under one key.
4. The additional data are the version, the topic by the name that clients use, the key id, and the place in the record:
   the whole value, or a path. A ciphertext that was put into another topic, or another field, is not decrypted. The
   name of the topic on a cluster, and offsets, are not bound: moves and mirrors change them. Nor is the key of the
   record: who may write to the cluster itself can copy a value from one record of the topic to another one.

The arithmetic. GCM is safe while no nonce is used twice under one key, and while a message has fewer than 2^32 blocks.
Counts have 32 bits. A batch holds at most 100 MiB without compression, so fewer than 2^27 parts of a byte or more. Two
batches get one key if they have the same data key and the same salt of 256 bits. For 2^64 batches under one data key,
the probability of that is 2^128 / 2^257, one in 2^129. A key file wraps data keys with random nonces of 96 bits, and
NIST SP 800-38D allows 2^32 of these for a key. A gateway makes a data key for each key id every 150 s at the most
often: 210,240 a year. A thousand gateways reach 2^32 after 20 years with one version of a key; Vault asks for a new
version likewise.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import struct
from dataclasses import dataclass
from struct import Struct as Packing
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mesh.protection.keys import KEY_BYTES, KEY_ID, LONGEST_WRAPPED, DataKey, Wrapped

HEADER: Final = b"mesh-protection"
MASKED_HEADER: Final = b"mesh-masked"
"""Says why values of the record are masked; only clients see it, it is never stored."""
OWN_HEADERS: Final = frozenset({HEADER, MASKED_HEADER})
VERSION: Final = 1
SALT_BYTES: Final = 32
WHOLE_VALUE: Final = "value"
"""The place of a whole value; places of fields are paths in brackets."""
TOKEN: Final = re.compile(r"mesh:1:([A-Za-z0-9][A-Za-z0-9._-]{0,62}):([A-Za-z0-9+/]+={0,2})")
_TAG_BYTES: Final = 16
_COUNT: Final = Packing(">I")
_NONCE: Final = Packing(">8xI")
_HEAD: Final = Packing(">BBBH")
"""Version, kind, and the lengths of the key id and the wrapped data key."""
_FIELDS, _WHOLE = 0, 1
MOST_PARTS: Final = 1 << 32
_PURPOSE: Final = b"kafka-mesh protection 1"


class NotDecryptedError(Exception):
    """Bytes that are no ciphertext of this place, or were changed. The text says so."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The header of a record, read."""

    name: Wrapped
    salt: bytes
    is_whole: bool
    """Whether the whole value is encrypted, and not fields of it."""

    def encoded(self) -> bytes:
        key_id = self.name.key_id.encode()
        head = _HEAD.pack(VERSION, _WHOLE if self.is_whole else _FIELDS, len(key_id), len(self.name.wrapped))
        return b"".join((head, key_id, self.name.wrapped, self.salt))

    @staticmethod
    def read(header: bytes) -> Envelope:
        """NotDecryptedError."""
        try:
            version, kind, id_length, length = _HEAD.unpack_from(header)
            key_id = header[_HEAD.size : _HEAD.size + id_length].decode("ascii")
        except (ValueError, struct.error):
            raise NotDecryptedError("its header mesh-protection can't be read") from None
        if version != VERSION:
            raise NotDecryptedError(f"it has version {version} of protection, and this gateway knows {VERSION}")
        at = _HEAD.size + id_length
        rest = header[at:]
        if kind not in (_FIELDS, _WHOLE) or not KEY_ID.fullmatch(key_id) or len(rest) != length + SALT_BYTES:
            raise NotDecryptedError("its header mesh-protection can't be read")
        if not 0 < length <= LONGEST_WRAPPED:
            raise NotDecryptedError("its header mesh-protection has no wrapped data key")
        return Envelope(Wrapped(key_id, rest[:length]), rest[length:], kind == _WHOLE)


class Sealing:
    """Encrypts parts of the records of one batch, for one topic, by one key."""

    def __init__(self, key: DataKey, topic: str, *, is_whole: bool, salt: bytes | None = None) -> None:
        self.envelope = Envelope(key.name, secrets.token_bytes(SALT_BYTES) if salt is None else salt, is_whole)
        self.header = self.envelope.encoded()
        self._topic = topic
        self._cipher = _cipher(key.secret, self.envelope.salt)
        self._count = 0

    def sealed(self, clear: bytes, place: str) -> bytes:
        """Count, ciphertext and tag."""
        count = self._count
        if count >= MOST_PARTS:
            raise OverflowError("a batch has more parts than nonces")
        self._count = count + 1
        known = _known(self._topic, self.envelope.name.key_id, place)
        return _COUNT.pack(count) + self._cipher.encrypt(_NONCE.pack(count), clear, known)

    def token(self, clear: bytes, place: str) -> str:
        """The same as a text, for a field."""
        return f"mesh:1:{self.envelope.name.key_id}:{base64.b64encode(self.sealed(clear, place)).decode()}"


class Opening:
    """Decrypts parts of records with one envelope."""

    def __init__(self, envelope: Envelope, secret: bytes) -> None:
        self._key_id = envelope.name.key_id
        self._cipher = _cipher(secret, envelope.salt)

    def opened(self, sealed: bytes, place: str, topics: tuple[str, ...]) -> bytes:
        """`topics`: the names of its topic, and of those of which it holds copies. NotDecryptedError."""
        if len(sealed) < _COUNT.size + _TAG_BYTES:
            raise NotDecryptedError("it is shorter than any ciphertext")
        (count,) = _COUNT.unpack_from(sealed)
        for topic in topics:
            try:
                known = _known(topic, self._key_id, place)
                return self._cipher.decrypt(_NONCE.pack(count), sealed[_COUNT.size :], known)
            except InvalidTag:
                continue
        raise NotDecryptedError("it was changed, or encrypted for another topic or field")


def read_token(text: str) -> tuple[str, bytes] | None:
    """The key id and the sealed bytes of a text; None if it is no token."""
    found = TOKEN.fullmatch(text)
    if found is None:
        return None
    try:
        return found[1], base64.b64decode(found[2], validate=True)
    except binascii.Error:
        return None


def _cipher(secret: bytes, salt: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, _PURPOSE).derive(secret))


def _known(topic: str, key_id: str, place: str) -> bytes:
    return b"\0".join((_PURPOSE, topic.encode(), key_id.encode(), place.encode()))
