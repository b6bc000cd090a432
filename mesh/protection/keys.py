"""Keys of values. A data key is made for a while and wrapped by a service of keys, which alone has the key with the id.

The interface `KeyService` is that of plug-ins, too. A service answers, or raises one of two errors. `KeyGoneError` is
for ever: the key, or its version, was destroyed, or has never been. `KeysAwayError` says nothing about the key: the
service does not answer, or does not let the gateway in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
KEY_BYTES: Final = 32
"""AES-256."""
LONGEST_WRAPPED: Final = 1024
"""Bytes; those of Vault are about 100."""


class Wrapped(NamedTuple):
    """A data key as records carry it."""

    key_id: str
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class DataKey:
    """A data key in the clear. It stays in the memory of a gateway, for a bounded time."""

    name: Wrapped
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoKey:
    """A data key could not be had."""

    reason: str
    """Without any secret."""
    is_gone: bool
    """Whether this is for ever."""


class KeyGoneError(Exception):
    """The service of keys has no such key, and says so. The text is for logs and clients."""


class KeysAwayError(Exception):
    """The service of keys does not answer, or not about this key."""


class KeyService(Protocol):
    """A key management service."""

    async def make(self, key_id: str) -> DataKey:
        """A new data key, wrapped by the newest version of the key. KeyGoneError, KeysAwayError."""
        ...

    async def unwrap(self, name: Wrapped) -> bytes:
        """The data key of a record. KeyGoneError, KeysAwayError."""
        ...

    async def close(self) -> None: ...
