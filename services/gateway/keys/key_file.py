"""A service of keys that is a file on this machine: a key with its id and its version on each line.

# id  version  32 bytes in base64 pii   1        q1ZZk1bY… pii   2        0mD5sHe3…

The newest version wraps data keys, the older ones unwrap those that they have wrapped. A version that is taken out, or
an id with all its versions, is destroyed, and so are the values that it has encrypted. The file is read each time that
a data key is made or unwrapped, so a change needs no restart. A file that is missing or can't be read destroys nothing:
then the service is away.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections.abc import Mapping
from pathlib import Path
from struct import Struct as Packing
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mesh.protection.keys import KEY_BYTES, KEY_ID, DataKey, KeyGoneError, KeysAwayError, Wrapped

LARGEST_FILE: Final = 1024 * 1024
"""Bytes: some 15,000 keys."""
_VERSION: Final = Packing(">I")
_NONCE_BYTES: Final = 12
MOST_VERSION: Final = 2**31

Keys = Mapping[str, Mapping[int, bytes]]
"""By id and version."""


class KeyFile:
    """See above."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def make(self, key_id: str) -> DataKey:
        versions = await self._versions(key_id)
        newest = max(versions)
        secret, nonce = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(versions[newest]).encrypt(nonce, secret, key_id.encode())
        return DataKey(Wrapped(key_id, _VERSION.pack(newest) + nonce + sealed), secret)

    async def unwrap(self, name: Wrapped) -> bytes:
        versions = await self._versions(name.key_id)
        wrapped = name.wrapped
        if len(wrapped) <= _VERSION.size + _NONCE_BYTES:
            raise KeyGoneError(f"the data key of key {name.key_id!r} was not wrapped by a key file")
        (version,) = _VERSION.unpack_from(wrapped)
        key = versions.get(version)
        if key is None:
            raise KeyGoneError(f"version {version} of key {name.key_id!r} is gone")
        nonce, sealed = wrapped[_VERSION.size :][:_NONCE_BYTES], wrapped[_VERSION.size + _NONCE_BYTES :]
        try:
            return AESGCM(key).decrypt(nonce, sealed, name.key_id.encode())
        except InvalidTag:
            raise KeyGoneError(f"key {name.key_id!r} has another value than when it wrapped the data key") from None

    async def close(self) -> None:
        """Holds nothing."""

    async def _versions(self, key_id: str) -> Mapping[int, bytes]:
        versions = (await asyncio.to_thread(read_keys, self._path)).get(key_id)
        if versions is None:
            raise KeyGoneError(f"key {key_id!r} is gone")
        return versions


def read_keys(path: Path) -> Keys:
    """All keys of a file. KeysAwayError says which line is wrong, never what it holds."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise KeysAwayError(f"the key file {path} can't be read: {error.strerror or type(error).__name__}") from None
    if len(content) > LARGEST_FILE:
        raise KeysAwayError(f"the key file {path} has more than {LARGEST_FILE} bytes")
    found: dict[str, dict[int, bytes]] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        fault = _take(found, words)
        if fault:
            raise KeysAwayError(f"the key file {path} has a fault in line {number}: {fault}")
    if not found:  # a file that is being written is empty for a moment
        raise KeysAwayError(f"the key file {path} has no keys")
    return found


def _take(found: dict[str, dict[int, bytes]], words: list[str]) -> str:
    """The fault of a line; empty if it is taken."""
    if len(words) != 3:
        return "it has not three words: id, version, and 32 bytes in base64"
    key_id, version, text = words
    if not KEY_ID.fullmatch(key_id):
        return "an id has 1 to 63 characters of [A-Za-z0-9._-]"
    if not version.isascii() or not version.isdecimal() or not 0 < int(version[:11]) < MOST_VERSION:
        return "a version is a number above 0"
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "the key is no base64"
    if len(key) != KEY_BYTES:
        return f"the key has {len(key)} bytes, and {KEY_BYTES} are right"
    versions = found.setdefault(key_id, {})
    if int(version) in versions:
        return "its version of this id is there already"
    versions[int(version)] = key
    return ""
