"""Sessions of viewers who have logged in: in memory, bounded, with an end. No I/O.

1. A browser has a random name of its session in a cookie. The store knows only the digest of the name, and the token.
2. A session ends at the first of: its longest life, its longest idleness, the end of its token, the log-out.
3. Each form carries a text that follows from the session's name, so no other page can send the form (CSRF).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

NAME_BYTES = 32
LONGEST_TOKEN = 16 * 1024
"""Bytes of a token; gRPC's servers take headers of 16 KiB together by default."""


@dataclass(slots=True)
class Session:
    """A log-in."""

    token: str = field(repr=False)
    ends: float
    """By the store's clock."""
    used: float


class Sessions:
    """The log-ins of all viewers."""

    def __init__(self, *, most: int, life_s: float, idle_s: float, clock: Callable[[], float]) -> None:
        """`clock`: seconds since 1970, as the claims of tokens have them."""
        self._most, self._life_s, self._idle_s, self._clock = most, life_s, idle_s, clock
        self._by_digest: OrderedDict[str, Session] = OrderedDict()
        """The one that was used last stands last."""

    def __len__(self) -> int:
        self._forget_ended()
        return len(self._by_digest)

    def open(self, token: str) -> str:
        """The name of a new session, for a cookie."""
        self._forget_ended()
        while len(self._by_digest) >= self._most:
            self._by_digest.popitem(last=False)
        now = self._clock()
        name = secrets.token_urlsafe(NAME_BYTES)
        ends = min(now + self._life_s, end_of(token) or float("inf"))
        self._by_digest[_digest(name)] = Session(token, ends, now)
        return name

    def find(self, name: str) -> Session | None:
        """The session of a cookie, which counts as used now; None if it has ended."""
        digest = _digest(name)
        session = self._by_digest.get(digest)
        if session is None:
            return None
        if self._has_ended(session):
            del self._by_digest[digest]
            return None
        session.used = self._clock()
        self._by_digest.move_to_end(digest)
        return session

    def peek(self, name: str) -> Session | None:
        """As `find`, but the session does not count as used: an open page that updates itself keeps no log-in."""
        session = self._by_digest.get(_digest(name))
        return None if session is None or self._has_ended(session) else session

    def close(self, name: str) -> None:
        self._by_digest.pop(_digest(name), None)

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return now >= session.ends or now - session.used >= self._idle_s

    def _forget_ended(self) -> None:
        for digest in [digest for digest, session in self._by_digest.items() if self._has_ended(session)]:
            del self._by_digest[digest]


class FormKeys:
    """The text that a form carries, by the name in the cookie of the browser that got the form."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(NAME_BYTES)

    def key(self, name: str) -> str:
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()

    def fits(self, name: str, key: str) -> bool:
        return bool(name) and hmac.compare_digest(self.key(name).encode(), key.encode())


def end_of(token: str) -> float | None:
    """The claim `exp` of a token. Nobody has checked the token here: control does, with each call."""
    try:
        part = token.split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(said["exp"])
    except (LookupError, ValueError, TypeError, binascii.Error):
        return None


def is_token(text: str) -> bool:
    """Whether a text can be sent as a bearer token (RFC 6750, 2.1)."""
    return 0 < len(text) <= LONGEST_TOKEN and text.isascii() and text.isprintable() and len(text.split()) == 1


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
