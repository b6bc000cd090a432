"""The differences between two tables: what a router sends to a data plane that has the first one.

Theory of operation
1. Two tables of one fold share the parts of their rules (`ordered`) and their policies, but for those that changed. So
   `delta_between` looks into the changed parts only. It compares all entries of tables that share nothing.
2. A delta holds whole entries, those that go, too: a reader that lacks one has another table than the writer believes.
   Policies are lists whose order counts. Their changes say places.
3. `table_after` changes a table as a fold does: all parts, and the indexes of look-ups, are carried on. Its steps take
   a millisecond at most.
4. The digest of the table that follows decides (`table_bytes`). The reader computes the digest from its own table, so
   an error of either side ends with a whole table, and not with another table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from mesh.routing import codec
from mesh.routing.living import LivingRules, order_of
from mesh.routing.ordered import Ordered
from mesh.routing.policies import Policies
from mesh.routing.rule_indexes import Change
from mesh.routing.rules import RuleVersion
from mesh.routing.table import RoutingTable
from mesh.routing.topic_versions import TopicVersions, is_about_topics
from mesh.rpc import acls, quotas, routing

Item = TypeVar("Item")
Entry = TypeVar("Entry", acls.Acl, quotas.Quota)
MOST_CHANGES = 1_000
"""Entries of a section that go or come. Above this number, a whole table is read sooner than a delta."""
IN_A_STEP = 10
"""Entries that are put in their places within a millisecond."""


class WrongBaseError(Exception):
    """The delta does not rest on this table."""


class _TooManyError(Exception):
    """So many entries differ that the whole table is better."""


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
        if after.acl_policy is not before.acl_policy:
            delta.acl_policy.CopyFrom(_acl_delta(before.acl_policy, after.acl_policy))
        if after.quota_policy is not before.quota_policy:
            delta.quota_policy.CopyFrom(_quota_delta(before.quota_policy, after.quota_policy))
        if after.validation_policy is not before.validation_policy:
            if after.validation_policy is None:
                raise _TooManyError
            delta.validation_policy.CopyFrom(after.validation_policy)
        if after.tenant_policy is not before.tenant_policy:
            if after.tenant_policy is None:
                raise _TooManyError
            delta.tenant_policy.CopyFrom(after.tenant_policy)
        if after.protection_policy is not before.protection_policy:
            if after.protection_policy is None:
                raise _TooManyError
            delta.protection_policy.CopyFrom(after.protection_policy)
    except _TooManyError:
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
    policies = Policies(
        _acls_after(before.acl_policy, delta.acl_policy) if delta.HasField("acl_policy") else before.acl_policy,
        _quotas_after(before.quota_policy, delta.quota_policy)
        if delta.HasField("quota_policy")
        else before.quota_policy,
        codec.validation_policy_from_proto(delta.validation_policy)
        if delta.HasField("validation_policy")
        else before.validation_policy,
        codec.tenant_policy_from_proto(delta.tenant_policy)
        if delta.HasField("tenant_policy")
        else before.tenant_policy,
        codec.protection_policy_from_proto(delta.protection_policy)
        if delta.HasField("protection_policy")
        else before.protection_policy,
    )
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
        raise _TooManyError
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


# --- policies ------------------------------------------------------------------------------------------------------


class _Edit(NamedTuple):
    gone: list[int]
    places: list[int]


def _acl_delta(before: acls.AclPolicy | None, after: acls.AclPolicy | None) -> routing.AclPolicyDelta:
    if after is None:
        raise _TooManyError  # a policy never goes; tables of two logs are not compared
    edit = _edit(() if before is None else before.acls, after.acls)
    frame = acls.AclPolicy(mode=after.mode, super_users=after.super_users, revision=after.revision)
    come = (after.acls[place] for place in edit.places)
    return routing.AclPolicyDelta(frame=frame, gone=edit.gone, come=come, places=edit.places)


def _quota_delta(before: quotas.QuotaPolicy | None, after: quotas.QuotaPolicy | None) -> routing.QuotaPolicyDelta:
    if after is None:
        raise _TooManyError
    edit = _edit(() if before is None else before.quotas, after.quotas)
    frame = quotas.QuotaPolicy(revision=after.revision)
    come = (after.quotas[place] for place in edit.places)
    return routing.QuotaPolicyDelta(frame=frame, gone=edit.gone, come=come, places=edit.places)


def _edit(before: Iterable[Entry], after: Iterable[Entry]) -> _Edit:
    """The places that go and come, so that the list of those before becomes the one after."""
    old, new = ([entry.SerializeToString(deterministic=True) for entry in entries] for entries in (before, after))
    stay_old, stay_new = set(new), set(old)
    if [entry for entry in old if entry in stay_old] != [entry for entry in new if entry in stay_new]:
        raise _TooManyError  # entries that stay have changed places
    edit = _Edit(
        [place for place, entry in enumerate(old) if entry not in stay_old],
        [place for place, entry in enumerate(new) if entry not in stay_new],
    )
    if len(edit.gone) + len(edit.places) > MOST_CHANGES:
        raise _TooManyError
    return edit


def _acls_after(before: acls.AclPolicy | None, delta: routing.AclPolicyDelta) -> acls.AclPolicy:
    after = acls.AclPolicy()
    after.CopyFrom(delta.frame)
    after.acls.extend(_entries_after(() if before is None else before.acls, delta.gone, delta.come, delta.places))
    return codec.acl_policy_from_proto(after)


def _quotas_after(before: quotas.QuotaPolicy | None, delta: routing.QuotaPolicyDelta) -> quotas.QuotaPolicy:
    after = quotas.QuotaPolicy()
    after.CopyFrom(delta.frame)
    after.quotas.extend(_entries_after(() if before is None else before.quotas, delta.gone, delta.come, delta.places))
    return codec.quota_policy_from_proto(after)


def _entries_after(
    before: Sequence[Any], gone: Sequence[int], come: Sequence[Any], places: Sequence[int]
) -> Sequence[Any]:
    if len(come) != len(places) or (gone and not 0 <= min(gone) <= max(gone) < len(before)):
        raise WrongBaseError("an entry of a policy goes, and is not here")
    going = set(gone)
    entries = [entry for place, entry in enumerate(before) if place not in going]
    for place, entry in zip(places, come, strict=True):
        entries.insert(place, entry)
    return entries
