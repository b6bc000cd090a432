"""The share groups of a topic that moves: they go on at the target where the source's state of them begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from mesh.routing import UpstreamCluster
from services.control.upstream.groups import GroupRefusedError
from services.control.upstream.share_starts import (
    NO_START,
    Starts,
    set_share_starts,
    share_groups,
    share_starts,
    share_states,
)

log = structlog.get_logger(__name__)


class ShareGroups:
    """Gives each share group of a topic its start at the target; a copy's offsets are the same there.

    Gateways do not hold acknowledgements, so a start at the source may go on within the hold. A lower start at the
    target is right: the group gets some records again. A higher one, or none, would miss records.
    """

    def __init__(
        self,
        source: tuple[UpstreamCluster, str],
        target: tuple[UpstreamCluster, str],
        moves: Callable[[str], bool],
    ) -> None:
        """`source`, `target`: cluster, and the topic's name there; `moves`: whether a group follows its topics."""
        self._source, self._target = source, target
        self._moves = moves
        self._readers: list[str] | None = None
        self._given: dict[str, Starts] = {}
        self.refused: dict[str, str] = {}
        """Groups whose starts the target did not take at the last attempt, with the reason."""

    async def follow(self) -> bool:
        """Sets what differs. True if the target has what the last call gave. Raises UnreachableError.

        The first call finds the groups. A group that begins later has nothing to go on from.
        """
        if self._readers is None:
            groups = [name for name in await share_groups(self._source[0]) if self._moves(name)]
            self._readers = sorted(await share_starts(*self._source, groups)) if groups else []
        self.refused = {}
        if not self._readers:
            return True
        wanted, there = await asyncio.gather(
            share_starts(*self._source, self._readers), share_starts(*self._target, self._readers)
        )
        late = {
            group: starts
            for group, starts in wanted.items()
            if not (_covers(there.get(group, {}), starts) and self._is_given(group, there, starts))
        }
        self._given = {}
        await asyncio.gather(*(self._set(group, starts, there.get(group, {})) for group, starts in late.items()))
        return not late

    def _is_given(self, group: str, there: Mapping[str, Starts], wanted: Starts) -> bool:
        return there[group] == wanted or group in self._given

    async def _set(self, group: str, starts: Starts, there: Starts) -> None:
        cluster, topic = self._target
        try:
            await set_share_starts(cluster, topic, group, starts)
        except GroupRefusedError as error:
            if error.by_members and _covers(there, starts):
                self._given[group] = there  # the state of an earlier stay: records come again, and none is missed
                log.info("a share group gets records again after a move", group=group, cluster=cluster.name)
                return
            reason = "it has members there" if error.by_members else str(error)
            self.refused[group] = f"{cluster.name!r} refuses it: {reason}"
            log.warning("a share group gets no start on the target of a move", group=group, reason=reason)
        else:
            self._given[group] = starts


class ShareGroupsOfParts:
    """Gives each share group of a topic its start in the next part of the topic's log: the end of the target.

    The state of the old parts stays where it is, because gateways go on reading them.
    """

    def __init__(
        self,
        source: tuple[UpstreamCluster, str],
        target: tuple[UpstreamCluster, str],
        moves: Callable[[str], bool],
        bases: Callable[[], Awaitable[Starts]],
    ) -> None:
        """As for `ShareGroups`; `bases`: the end of each partition of the target, where nobody writes yet."""
        self._source, self._target = source, target
        self._moves = moves
        self._bases = bases
        self._readers: list[str] | None = None
        self.refused: dict[str, str] = {}
        """Groups whose starts the target did not take at the last attempt, with the reason."""

    async def follow(self) -> bool:
        """Sets what lacks. True if the target had everything. Raises UnreachableError."""
        if self._readers is None:
            groups = [name for name in await share_groups(self._source[0]) if self._moves(name)]
            self._readers = sorted(await share_states(*self._source, groups)) if groups else []
        self.refused = {}
        if not self._readers:
            return True
        there, bases = await asyncio.gather(share_states(*self._target, self._readers), self._bases())
        late = [group for group in self._readers if not _covers(_begun(there.get(group, {})), bases)]
        set_now = await asyncio.gather(*(self._set(group, bases, there.get(group, {})) for group in late))
        return not any(set_now) and not self.refused

    async def _set(self, group: str, bases: Starts, there: Starts) -> bool:
        """Whether the start is another one now."""
        cluster, topic = self._target
        try:
            await set_share_starts(cluster, topic, group, bases)
        except GroupRefusedError as error:
            begun = _begun(there)
            if error.by_members and there.keys() >= bases.keys() and _covers(there, {n: bases[n] for n in begun}):
                return False  # its members wait there already for the records that come
            reason = "it has members there" if error.by_members else str(error)
            self.refused[group] = f"{cluster.name!r} refuses it: {reason}"
            log.warning("a share group gets no start on the target of a move", group=group, reason=reason)
            return False
        return True


def _begun(starts: Starts) -> Starts:
    return {number: start for number, start in starts.items() if start != NO_START}


def _covers(there: Starts, wanted: Starts) -> bool:
    """Whether the target gives each record that the group has not settled at the source."""
    return all(number in there and there[number] <= start for number, start in wanted.items())
