"""Users with their verifiers on the way from control over routers to gateways: pages of a stream.

A stream begins with all users, in one page or more, and goes on with changes. A receiver uses no half of an edition.
A page without users confirms the edition. If control has lost the verifiers of a user, a receiver keeps those that it
has. No text and no error here has a part of a verifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mesh import durations
from mesh.connection_security import Mechanism
from mesh.rpc import users as pb
from mesh.scram import NotAVerifierError, Verifier
from mesh.scram_codec import verifier_from_proto, verifier_to_proto
from mesh.user_files import SECRET_BYTES, Users

MOST_USERS: Final = 10_000
"""Each service holds all of them in memory: some 4 MB of verifiers, and 34 MB with the longest names and salts."""
MOST_NAME_CHARACTERS: Final = 255
PAGE: Final = 1_000
"""Users in one page: some 300 KB, and 4 MB with the longest names and salts."""
CONFIRMED_EVERY_S: Final = 2.0
"""Seconds after which a sender confirms the edition, if nothing changes."""
SILENCE_S: Final = 5 * CONFIRMED_EVERY_S
"""Seconds without a page after which a receiver gives a sender up."""


class UnusableUsersError(ValueError):
    """Pages that can't be used: the reason, without any verifier."""


@dataclass(frozen=True, slots=True)
class UserTable:
    """The users up to an edition: the position of the last decision about a user."""

    edition: int
    users: Users
    lost: frozenset[str] = frozenset()
    """Users without verifiers here, because control has lost these."""

    def pages(self, age_s: float = 0.0) -> Iterator[pb.UserTablePage]:
        """The whole table. `age_s`: seconds since control has confirmed the table."""
        return pages(self.edition, self.messages(), self.users.decoy_secret, age_s)

    def changes_since(self, earlier: UserTable, age_s: float = 0.0) -> Iterator[pb.UserTablePage]:
        """The pages for a receiver that has the earlier table."""
        if earlier is self:
            return pages(self.edition, [], age_s=age_s)
        if earlier.edition > self.edition or earlier.users.decoy_secret != self.users.decoy_secret:
            return self.pages(age_s)
        had, found = earlier.users.by_name, self.users.by_name
        names = [*had, *earlier.lost]
        gone = [pb.UserVerifiers(name=name) for name in names if name not in found and name not in self.lost]
        new = [_message(name, each) for name, each in found.items() if not _is_same(had.get(name), each)]
        return pages(self.edition, [*gone, *new, *map(lost_user, self.lost - earlier.lost)], age_s=age_s)

    def messages(self) -> Iterator[pb.UserVerifiers]:
        yield from (_message(name, found) for name, found in self.users.by_name.items())
        yield from map(lost_user, self.lost)


class PageReader:
    """Puts the pages of one stream together."""

    def __init__(self, known: UserTable | None = None) -> None:
        """`known`: the table that the receiver had before, for users whose verifiers control has lost."""
        self._known = known
        self._table: UserTable | None = None
        self._found: dict[str, Mapping[Mechanism, Verifier]] = {}
        self._lost: set[str] = set()
        self._secret = b""
        self._is_amid = False
        """Whether more pages of an edition follow."""

    def take(self, page: pb.UserTablePage) -> UserTable | None:
        """The table after the last page of an edition, the same as before if the page confirms it; else None.

        Raises UnusableUsersError.
        """
        table = self._table
        if page.whole:
            self._found, self._lost, self._secret = {}, set(), page.decoy_secret
            if len(self._secret) < SECRET_BYTES:
                raise UnusableUsersError(f"a table whose decoy secret has less than {SECRET_BYTES} bytes")
        elif not self._secret:
            raise UnusableUsersError("a stream that does not begin with all users")
        elif not self._is_amid:
            if table is not None and page.edition == table.edition and not (page.users or page.more):
                return table
            self._found = dict(self._found)
        for user in page.users:
            self._put(user)
        if len(self._found) + len(self._lost) > MOST_USERS:
            raise UnusableUsersError(f"more than {MOST_USERS} users")
        self._is_amid = page.more
        if page.more:
            return None
        self._table = self._known = UserTable(page.edition, Users(self._found, self._secret), frozenset(self._lost))
        return self._table

    def _put(self, user: pb.UserVerifiers) -> None:
        if not 1 <= len(user.name) <= MOST_NAME_CHARACTERS:
            raise UnusableUsersError(f"a user whose name has {len(user.name)} characters, not 1 to 255")
        self._lost.discard(user.name)
        if user.lost:
            had = None if self._known is None else self._known.users.by_name.get(user.name)
            if had is None:
                self._lost.add(user.name)
            else:
                self._found[user.name] = had
            return
        if not user.verifiers:
            self._found.pop(user.name, None)
            return
        try:
            verifiers = [verifier_from_proto(each) for each in user.verifiers]
        except NotAVerifierError as error:
            raise UnusableUsersError(f"user {user.name!r}: {error}") from None
        self._found[user.name] = {each.mechanism: each for each in verifiers}


def pages(
    edition: int, found: Iterable[pb.UserVerifiers], decoy_secret: bytes = b"", age_s: float = 0.0
) -> Iterator[pb.UserTablePage]:
    """Pages with these users, one at least. With a decoy secret they are a whole table."""
    rows = list(found)
    for start in range(0, max(1, len(rows)), PAGE):
        is_whole = start == 0 and bool(decoy_secret)
        yield pb.UserTablePage(
            edition=edition,
            whole=is_whole,
            more=start + PAGE < len(rows),
            users=rows[start : start + PAGE],
            decoy_secret=decoy_secret if is_whole else b"",
            age=durations.of_ms(int(age_s * 1000)),
        )


def lost_user(name: str) -> pb.UserVerifiers:
    """A user whose verifiers control has lost."""
    return pb.UserVerifiers(name=name, lost=True)


def _message(name: str, found: Mapping[Mechanism, Verifier]) -> pb.UserVerifiers:
    return pb.UserVerifiers(name=name, verifiers=map(verifier_to_proto, found.values()))


def _is_same(had: Mapping[Mechanism, Verifier] | None, found: Mapping[Mechanism, Verifier]) -> bool:
    return had is found or had == found
