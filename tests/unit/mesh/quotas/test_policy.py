"""The quota that counts for a client, beside a plain reading of Kafka's order of entities."""

from __future__ import annotations

import random

from mesh.quotas import DEFAULT, Entity, Key, Limit, Policy, Quota
from mesh.quotas.codec import policy_from_proto, quota_to_proto
from mesh.rpc import quotas

PRODUCE = Key.PRODUCER_BYTE_RATE


def plain_reading(policy: Policy, user: str, client_id: str) -> Limit | None:
    """DefaultQuotaCallback.quotaLimit and quotaMetricTags, level by level."""
    levels = (
        (Entity(user, client_id), (user, client_id)),
        (Entity(user, DEFAULT), (user, client_id)),
        (Entity(user), (user, None)),
        (Entity(DEFAULT, client_id), (user, client_id)),
        (Entity(DEFAULT, DEFAULT), (user, client_id)),
        (Entity(DEFAULT), (user, None)),
        (Entity(None, client_id), (None, client_id)),
        (Entity(None, DEFAULT), (None, client_id)),
    )
    for entity, tags in levels:
        for quota in policy.quotas:
            if quota.key is PRODUCE and quota.entity == entity:
                return Limit(quota, (PRODUCE, *tags, None))
    return None


def test_the_first_entity_of_kafkas_order_counts() -> None:
    parts = ("ann", "bob", DEFAULT, None)
    entities = [Entity(user, client) for user in parts for client in parts if (user, client) != (None, None)]
    chance = random.Random(25)  # a seed, so that a failure can be repeated
    counted = set()
    for _ in range(500):
        chosen = chance.sample(entities, chance.randint(0, 6))
        policy = Policy(Quota(entity, PRODUCE, 10.0 + number) for number, entity in enumerate(chosen))
        for user in ("ann", "bob", "eve"):
            for client_id in ("ann", "bob", "eve", ""):
                found = policy.limit(PRODUCE, user, client_id)
                assert found == plain_reading(policy, user, client_id)
                counted.add(None if found is None else found.quota.entity)
    assert len(counted) == len(entities) + 1


def test_each_key_is_looked_up_for_itself_and_addresses_for_themselves() -> None:
    policy = Policy(
        (
            Quota(Entity("ann"), PRODUCE, 1.0),
            Quota(Entity(None, "app"), Key.CONSUMER_BYTE_RATE, 2.0),
            Quota(Entity(ip=DEFAULT), Key.CONNECTION_CREATION_RATE, 3.0),
            Quota(Entity(ip="10.0.0.1"), Key.CONNECTION_CREATION_RATE, 4.0),
        )
    )
    assert [each.quota.value for each in policy.limits("ann", "app", "10.0.0.2")] == [1.0, 2.0, 3.0]
    assert [each.quota.value for each in policy.limits("bob", "other", "10.0.0.1")] == [4.0]
    assert policy.limit(Key.REQUEST_PERCENTAGE, "ann", "app") is None


def test_a_default_gives_each_user_a_quota_of_its_own() -> None:
    policy = Policy((Quota(Entity(DEFAULT), PRODUCE, 1.0),))
    ann, bob = policy.limit(PRODUCE, "ann", "x"), policy.limit(PRODUCE, "bob", "x")
    assert ann is not None
    assert bob is not None
    assert ann.sharers != bob.sharers
    assert ann == policy.limit(PRODUCE, "ann", "y")


def test_a_group_of_the_token_counts_behind_the_user_and_before_the_default() -> None:
    reports, default = Quota(Entity("Group:reports"), PRODUCE, 2.0), Quota(Entity(DEFAULT), PRODUCE, 3.0)
    policy = Policy((Quota(Entity("ann"), PRODUCE, 1.0), reports, default))
    groups = ["audit", "reports"]

    def counts(user: str, groups: list[str]) -> float:
        found = policy.limit(PRODUCE, user, "x", groups)
        assert found is not None
        return found.quota.value

    assert (counts("ann", groups), counts("bob", groups), counts("bob", ["audit"])) == (1.0, 2.0, 3.0)
    bob, eve = (policy.limit(PRODUCE, user, "x", groups) for user in ("bob", "eve"))
    assert bob == eve, "all clients of the group share the quota"
    assert bob == policy.limit(PRODUCE, "Group:reports", "x")


def test_users_whose_names_begin_alike_share_a_quota_behind_groups_and_before_the_default() -> None:
    quotas_of = {"ann-1": 1.0, "Group:reports": 2.0, "Prefixed:ann-": 3.0, "Prefixed:ann-long-": 4.0, "Prefixed:": 5.0}
    policy = Policy(Quota(Entity(user), PRODUCE, value) for user, value in quotas_of.items())

    def counts(user: str, *groups: str) -> float:
        found = policy.limit(PRODUCE, user, "x", groups)
        assert found is not None
        return found.quota.value

    users = ("ann-1", "ann-2", "ann-long-1", "ann", "")
    assert [counts(user) for user in users] == [1.0, 3.0, 4.0, 5.0, 5.0]
    assert counts("ann-2", "reports") == 2.0
    two, three = (policy.limit(PRODUCE, user, "x") for user in ("ann-2", "ann-3"))
    assert two == three == policy.limit(PRODUCE, "Prefixed:ann-", "x"), "all of them share the quota"
    own = Policy([*policy.quotas, Quota(Entity("Prefixed:ann-", DEFAULT), PRODUCE, 6.0)])
    apart = [own.limit(PRODUCE, "ann-2", client_id) for client_id in ("x", "y")]
    assert [each.quota.value for each in apart if each is not None] == [6.0, 6.0]
    assert apart[0] != apart[1], "each client.id has its own"
    assert own.limit(Key.CONSUMER_BYTE_RATE, "ann-2", "x") is None


def test_a_policy_comes_back_from_its_message() -> None:
    made = [
        Quota(Entity("ann", DEFAULT), PRODUCE, 1.5),
        Quota(Entity(DEFAULT, ""), Key.REQUEST_PERCENTAGE, 0.5),
        Quota(Entity(ip=DEFAULT), Key.CONNECTION_CREATION_RATE, 2.0),
    ]
    assert policy_from_proto(quotas.QuotaPolicy(quotas=map(quota_to_proto, made))).quotas == tuple(made)
