"""The differences between two tables: what a router sends to a data plane that has the first one.

Theory of operation
1. Two tables of one fold share the parts of their rules (`ordered`) and their policies, but for those that changed. So
   `delta_between` looks into the changed parts only. It compares all entries of tables that share nothing.
2. A delta holds whole entries, those that go, too: a reader that lacks one has another table than the writer believes.
   `policy_codec` has the differences of policies.
3. `table_after` changes a table as a fold does: all parts, and the indexes of look-ups, are carried on. Its steps take
   a millisecond at most.
4. The digest of the table that follows decides (`table_bytes`). The reader computes the digest from its own table, so
   an error of either side ends with a whole table, and not with another table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

from mesh.routing import codec
from mesh.routing.errors import TooManyChangesError, WrongBaseError
from mesh.routing.living import LivingRules, order_of
from mesh.routing.ordered import Ordered
from mesh.routing.policy_codec import MOST_CHANGES, policies_after, policies_difference
from mesh.routing.rule_indexes import Change
from mesh.routing.rules import RuleVersion
from mesh.routing.table import RoutingTable
from mesh.routing.topic_versions import TopicVersions, is_about_topics
from mesh.rpc import routing

Item = TypeVar("Item")
IN_A_STEP = 10
"""Entries that are put in their places within a millisecond."""


def delta_between(before: RoutingTable, after: RoutingTable) -> routing.TableDelta | None:
    """The delta without its digests; None where the whole table is better."""
    delta = routing.TableDelta(revision=after.revision)
    try:
        versions = [
            _difference(before.living_rules.ordered, after.living_rules.ordered),
            _difference(before.topics.ended, after.topics.ended),
        ]
        pasts = _difference(before.topics.pasts, after.topics.pasts)
        delta.gone_versions.extend(codec.version_to_proto(each) for change in versions for each in change.gone)
        delta.come_versions.extend(codec.version_to_proto(each) for change in versions for each in change.come)
        delta.gone_pasts.extend(map(codec.past_to_proto, pasts.gone))
        delta.come_pasts.extend(map(codec.past_to_proto, pasts.come))
        delta.policies.extend(policies_difference(before.policies, after.policies))
    except TooManyChangesError:
        return None
    delta.gone_clusters.extend(name for name in before.clusters if name not in after.clusters)
    delta.come_clusters.extend(
        codec.cluster_to_proto(cluster)
        for name, cluster in after.clusters.items()
        if before.clusters.get(name) != cluster
    )
    return delta


def table_after(before: RoutingTable, delta: routing.TableDelta) -> Generator[None, None, RoutingTable]:
    """The table that follows, step by step.

    InvalidRuleError as `codec.table_from_proto` has it; WrongBaseError when this table lacks an entry that goes.
    """
    codec.check_known(delta, "delta")
    living, topics = before.living_rules, before.topics
    come: list[RuleVersion] = []
    for message in delta.come_versions:
        come.append(codec.version_from_proto(message))
        if len(come) % IN_A_STEP == 0:
            yield
    gone: list[RuleVersion] = []
    for message in delta.gone_versions:
        version = codec.version_from_proto(message)
        found = (
            living.ordered.find(order_of(version)) if version.alive else topics.ended.find(topics.ended.key(version))
        )
        gone.append(_same(found, version))
        if len(gone) % IN_A_STEP == 0:
            yield
    versions = Change(gone, come)
    gone_pasts = [codec.past_from_proto(message) for message in delta.gone_pasts]
    pasts = Change(
        [_same(topics.past_of(past.match), past) for past in gone_pasts],
        [codec.past_from_proto(message) for message in delta.come_pasts],
    )
    for part in _divided(_only(versions, lambda version: version.alive)):
        living = living.replaced(part.gone, part.come)
        yield
    ended = yield from _carried(topics.ended, _only(versions, lambda version: not version.alive))
    counted = yield from _carried(topics.pasts, pasts)
    found_by_name = (
        (yield from _carried(topics.versions, _only(versions, is_about_topics))) if topics.in_parts else None
    )
    clusters = {name: cluster for name, cluster in before.clusters.items() if name not in set(delta.gone_clusters)}
    clusters |= {cluster.name: cluster for cluster in map(codec.cluster_from_proto, delta.come_clusters)}
    policies = policies_after(before.policies, delta.policies)
    yield
    rules = TableRules(living, TopicVersions(living, ended, counted, found_by_name))
    table = RoutingTable.resting_on(delta.revision, clusters, rules, policies)
    yield
    table.indexes.carry_on(before.indexes, versions, pasts)
    return table


class TableRules(NamedTuple):
    """The rules of a table."""

    living_rules: LivingRules
    topics: TopicVersions


def _difference(before: Ordered[Item], after: Ordered[Item]) -> Change[Item]:
    """The items by which the two differ; parts that both share are not looked into."""
    old_parts, new_parts = set(map(id, before.parts)), set(map(id, after.parts))
    old = {before.key(item): item for part in before.parts if id(part) not in new_parts for item in before.read(part)}
    new = {after.key(item): item for part in after.parts if id(part) not in old_parts for item in after.read(part)}
    equal = {key for key, item in old.items() if (other := new.get(key)) is item or other == item}
    change = Change(
        [item for key, item in old.items() if key not in equal],
        [item for key, item in new.items() if key not in equal],
    )
    if len(change.gone) + len(change.come) > MOST_CHANGES:
        raise TooManyChangesError
    return change


def _only(change: Change[Item], which: Callable[[Item], bool]) -> Change[Item]:
    return Change([*filter(which, change.gone)], [*filter(which, change.come)])


def _divided(change: Change[Item]) -> Iterator[Change[Item]]:
    """The change as small ones: all that goes, and then all that comes."""
    for start in range(0, len(change.gone), IN_A_STEP):
        yield Change(change.gone[start : start + IN_A_STEP], ())
    for start in range(0, len(change.come), IN_A_STEP):
        yield Change((), change.come[start : start + IN_A_STEP])


def _carried(items: Ordered[Item], change: Change[Item]) -> Generator[None, None, Ordered[Item]]:
    for part in _divided(change):
        items = items.changed(part.gone, part.come)
        yield
    return items


def _same(found: Item | None, wanted: Item) -> Item:
    if found is None or found != wanted:
        raise WrongBaseError(f"{wanted} goes, and is not here")
    return found
