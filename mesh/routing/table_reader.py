"""The tables of a stream as a data plane reads them: whole ones, and deltas that rest on the table before.

Theory of operation
1. All methods work step by step, and each takes a millisecond at most between two steps. A step of one method must not
   come between those of another.
2. A whole table comes in one message or in several (`part`). The reader reads each entry once, checks the entry, puts
   it into the indexes of look-ups, and keeps its bytes (`packed`). Versions that a few look-ups ask for at once are
   kept as objects.
3. An error in a part is the answer to the message that follows the parts, because that one has the revision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from operator import attrgetter

from mesh.at_once import done_at_once
from mesh.routing import codec
from mesh.routing.delta import TableRules, table_after
from mesh.routing.errors import InvalidRuleError, WrongBaseError
from mesh.routing.index import Index, match_of
from mesh.routing.living import LivingRules, is_asked_for_soon, order_of
from mesh.routing.ordered import Ordered
from mesh.routing.packed import PASTS, VERSIONS, Packing
from mesh.routing.policy_codec import policies_from_proto
from mesh.routing.rule_indexes import revisions_of
from mesh.routing.rules import Match, RuleVersion, Subject
from mesh.routing.table import RoutingTable
from mesh.routing.table_bytes import TableBytes
from mesh.routing.topic_versions import TopicVersions, past_key, version_key
from mesh.rpc import routing

ENTRIES_IN_A_STEP = 50
"""Versions of rules, or pasts, that are read within a millisecond."""
MOST_BYTES = 64 * 1024 * 1024
"""The bound of a whole table in parts; one message may have as much."""


class TableReader:
    """See above."""

    def __init__(self) -> None:
        self._bytes = TableBytes()
        self._base: RoutingTable | None = None
        """The table on which the next delta rests; None: no delta can be read."""
        self._coming: _Whole | None = None
        """The table of which parts have come."""

    def forget(self) -> None:
        """Tables and parts of an earlier stream count no more."""
        self._base = self._coming = None

    def begin(self, table: RoutingTable) -> Generator[None, None, bytes]:
        """A stream begins, and this table runs here. Returns its digest for the Hello."""
        self._base, self._coming = table, None
        yield from self._bytes.in_steps(table)
        return self._bytes.digest(table)

    def part(self, message: routing.RoutingTable) -> Generator[None, None, None]:
        """Some of the next table, which is a whole one. The message is used up."""
        if self._coming is None:
            self._base, self._coming = None, _Whole()
        yield from self._coming.take(message)

    def whole(self, message: routing.RoutingTable) -> Generator[None, None, RoutingTable]:
        """The table of this message, which is used up, and of the parts before it.

        InvalidRuleError when it can't be understood, and then the next delta has no base.
        """
        yield from self.part(message)
        coming, self._coming = self._coming, None
        assert coming is not None
        self._base = table = yield from coming.table()
        return table

    def after(self, delta: routing.TableDelta) -> Generator[None, None, RoutingTable]:
        """The table that follows from the one before.

        WrongBaseError when the delta rests on another table; InvalidRuleError as above.
        """
        base, self._base, self._coming = self._base, None, None
        if base is None:
            raise WrongBaseError("no table has been read on which the delta could rest")
        yield from self._bytes.in_steps(base)
        if delta.base != self._bytes.digest(base):
            raise WrongBaseError(f"the delta rests on another table than that of revision {base.revision} here")
        table = yield from table_after(base, delta)
        yield from self._bytes.in_steps(table)
        if delta.digest != self._bytes.digest(table):
            raise WrongBaseError(f"the table of revision {delta.revision} came out otherwise than the router has it")
        self._base = table
        return table

    def encoded(self, table: RoutingTable) -> Generator[None, None, list[bytes]]:
        """The table as a routing.RoutingTable, in pieces."""
        yield from self._bytes.in_steps(table)
        return self._bytes.pieces(table)


def read_at_once(message: routing.RoutingTable) -> RoutingTable:
    """The table of a message that is used up, where no event loop has to serve others; InvalidRuleError as above."""
    return done_at_once(TableReader().whole(message))


class _Whole:
    """A whole table that is being read."""

    def __init__(self) -> None:
        self._rest = routing.RoutingTable()
        """All but rule versions and pasts."""
        self._bytes = 0
        self._living = Packing(order_of, VERSIONS)
        self._kinds: Counter[type[Match]] = Counter()
        self._few: list[RuleVersion] = []
        self._ended: list[RuleVersion] = []
        self._pasts = Packing(past_key, PASTS)
        self._indexes = {subject: Index[RuleVersion]((), match_of, VERSIONS) for subject in Subject}
        self._past_index = Index((), attrgetter("match"), PASTS)
        self._revisions: Counter[int] = Counter()
        self._fault: InvalidRuleError | None = None

    def take(self, message: routing.RoutingTable) -> Generator[None, None, None]:
        """Read a part."""
        try:
            if self._fault is None:
                yield from self._read(message)
        except InvalidRuleError as error:
            self._fault = error

    def _read(self, message: routing.RoutingTable) -> Generator[None, None, None]:
        codec.check_known(message, "table")
        for number, version in enumerate(message.rule_versions):
            self._add(codec.version_from_proto(version), self._counted(VERSIONS.framed(version)))
            if number % ENTRIES_IN_A_STEP == 0:
                yield
        for number, each in enumerate(message.pasts):
            past, kept = codec.past_from_proto(each), self._counted(PASTS.framed(each))
            self._pasts.add(past, kept)
            self._past_index.add(past, kept)
            self._revisions[past.until_revision] += 1
            if number % ENTRIES_IN_A_STEP == 0:
                yield
        message.ClearField("rule_versions")
        message.ClearField("pasts")
        self._rest.MergeFrom(message)
        yield

    def _counted(self, kept: bytes) -> bytes:
        self._bytes += len(kept)
        if self._bytes > MOST_BYTES:
            raise InvalidRuleError("table", f"the parts of the table have more than {MOST_BYTES} bytes")
        return kept

    def _add(self, version: RuleVersion, kept: bytes) -> None:
        match = version.rule.match
        self._revisions.update(revisions_of((version,), ()))
        if match.client is None:
            self._indexes[match.subject].add(version, kept)
        if not version.alive:
            self._ended.append(version)
            return
        self._living.add(version, kept)
        self._kinds[type(match)] += 1
        if is_asked_for_soon(version):
            self._few.append(version)

    def table(self) -> Generator[None, None, RoutingTable]:
        """The table, when all has come."""
        if self._fault is not None:
            raise self._fault
        rest, policies = self._rest, policies_from_proto(self._rest)
        clusters = {each.name: each for each in map(codec.cluster_from_proto, rest.clusters)}
        yield
        living = yield from LivingRules.beside(self._living.packed(), self._kinds, self._few)
        topics = TopicVersions(living, Ordered(self._ended, version_key), self._pasts.packed())
        table = RoutingTable.resting_on(rest.revision, clusters, TableRules(living, topics), policies)
        table.indexes.take(self._indexes, self._past_index, self._revisions)
        return table
