"""Whatever is asked and whatever clusters say: each item reaches those it belongs to once, and has one answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.requests.clusters import acls, client_quotas, scram_users
from services.gateway.requests.plan import Handle, Unreachable
from services.gateway.requests.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    partition_reassignments,
)
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import alter_client_quotas as quotas
from services.gateway.wire.messages import alter_configs as configs
from services.gateway.wire.messages import alter_partition_reassignments as moves
from services.gateway.wire.messages import alter_user_scram_credentials as scram
from services.gateway.wire.messages import create_acls as rights
from services.gateway.wire.messages import create_partitions as growing
from services.gateway.wire.messages import create_topics as creating
from services.gateway.wire.messages import delete_topics as deleting
from tests.fixtures.sweeps import REPEAT
from tests.unit.gateway.requests.playbook import Playbook, World

TOPIC, LITERAL = 2, 3
OWNERS = {"a": "c1", "b": "c2", "x": None}
"""First letter of a topic's name -> its cluster."""
CODES = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION)


@dataclass(frozen=True)
class Api:
    """How items are asked and answered. `names`: those in a request; `told`: the results for (name, code)."""

    handle: Handle
    version: int
    asking: Callable[[list[str]], Any]
    names: Callable[[Any], Iterable[str]]
    told: Callable[[Sequence[tuple[str, int]]], Any]
    codes: Callable[[Any], Iterable[tuple[str, int]]]
    owned: bool = True
    """Whether an item is a topic with one owner; else it belongs to all clusters."""


def number(topic: str) -> int:
    return 2_000_002 if topic.startswith("b") else 1_000_001


APIS = {
    "CreateTopics": Api(
        create_topics.handle,
        7,
        lambda names: creating.CreateTopicsRequest([creating.CreatableTopic(name, 1, 1) for name in names]),
        lambda request: [topic.name for topic in request.topics],
        lambda told: creating.CreateTopicsResponse(
            topics=[creating.CreatableTopicResult(name, error_code=code) for name, code in told]
        ),
        lambda answer: [(topic.name, topic.error_code) for topic in answer.topics],
    ),
    "CreatePartitions": Api(
        create_partitions.handle,
        3,
        lambda names: growing.CreatePartitionsRequest(
            [growing.CreatePartitionsTopic(name, 9, None) for name in names], 1000
        ),
        lambda request: [topic.name for topic in request.topics],
        lambda told: growing.CreatePartitionsResponse(
            results=[growing.CreatePartitionsTopicResult(name, code, None) for name, code in told]
        ),
        lambda answer: [(result.name, result.error_code) for result in answer.results],
    ),
    "DeleteTopics": Api(
        delete_topics.handle,
        6,
        lambda names: deleting.DeleteTopicsRequest([deleting.DeleteTopicState(name) for name in names]),
        lambda request: [topic.name for topic in request.topics],
        lambda told: deleting.DeleteTopicsResponse(
            responses=[deleting.DeletableTopicResult(name, error_code=code) for name, code in told]
        ),
        lambda answer: [(result.name, result.error_code) for result in answer.responses],
    ),
    "AlterConfigs": Api(
        alter_configs.handle,
        2,
        lambda names: configs.AlterConfigsRequest([configs.AlterConfigsResource(TOPIC, name) for name in names]),
        lambda request: [resource.resource_name for resource in request.resources],
        lambda told: configs.AlterConfigsResponse(
            responses=[configs.AlterConfigsResourceResponse(code, None, TOPIC, name) for name, code in told]
        ),
        lambda answer: [(result.resource_name, result.error_code) for result in answer.responses],
    ),
    "AlterPartitionReassignments": Api(
        partition_reassignments.handle_alter,
        1,
        lambda names: moves.AlterPartitionReassignmentsRequest(
            topics=[moves.ReassignableTopic(name, [moves.ReassignablePartition(0, [number(name)])]) for name in names]
        ),
        lambda request: [topic.name for topic in request.topics],
        lambda told: moves.AlterPartitionReassignmentsResponse(
            responses=[
                moves.ReassignableTopicResponse(name, [moves.ReassignablePartitionResponse(0, code, None)])
                for name, code in told
            ]
        ),
        lambda answer: [(each.name, p.error_code) for each in answer.responses for p in each.partitions],
    ),
    "CreateAcls": Api(
        acls.handle_create,
        3,
        lambda names: rights.CreateAclsRequest(
            [rights.AclCreation(TOPIC, name, LITERAL, name, "*", 3, 3) for name in names]
        ),
        lambda request: [creation.principal for creation in request.creations],
        lambda told: rights.CreateAclsResponse(results=[rights.AclCreationResult(code, None) for _, code in told]),
        lambda answer: [("", result.error_code) for result in answer.results],
    ),
    "AlterClientQuotas": Api(
        client_quotas.handle_alter,
        1,
        lambda names: quotas.AlterClientQuotasRequest(
            [quotas.EntryData([quotas.EntityData("user", name)]) for name in names]
        ),
        lambda request: [entry.entity[0].entity_name for entry in request.entries],
        lambda told: quotas.AlterClientQuotasResponse(
            entries=[quotas.EntryResult(code, None, [quotas.EntityData("user", name)]) for name, code in told]
        ),
        lambda answer: [(entry.entity[0].entity_name, entry.error_code) for entry in answer.entries],
        owned=False,
    ),
    "AlterUserScramCredentials": Api(
        scram_users.handle_alter,
        0,
        lambda names: scram.AlterUserScramCredentialsRequest(
            upsertions=[scram.ScramCredentialUpsertion(name, 1, 4096) for name in names]
        ),
        lambda request: [upsertion.name for upsertion in request.upsertions],
        lambda told: scram.AlterUserScramCredentialsResponse(
            results=[scram.AlterUserScramCredentialsResult(name, code, None) for name, code in told]
        ),
        lambda answer: [(result.user, result.error_code) for result in answer.results],
        owned=False,
    ),
}

NAMES = st.lists(
    st.builds(lambda letter, n: f"{letter}{n}", st.sampled_from("abx"), st.integers(0, 9)), unique=True, max_size=8
)
VERDICTS = st.dictionaries(
    st.sampled_from(["c1", "c2"]),
    st.one_of(st.none(), st.lists(st.sampled_from(CODES), min_size=10, max_size=10)),
)
"""Cluster -> what it says to the items of its own, in turn; None: it does not answer."""


def expected(name: str, owned: bool, said: Mapping[tuple[str, str], int]) -> int | None:
    """The code of an item; None: any error."""
    if not owned:
        codes = [said["c1", name], said["c2", name]]
        return next((code for code in codes if code), ErrorCode.NONE)
    owner = OWNERS[name[0]]
    return None if owner is None else said[owner, name]


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
@settings(max_examples=20 * REPEAT, deadline=None)
@given(names=NAMES, verdicts=VERDICTS)
def test_nothing_is_lost_and_nothing_invented(
    api: Api, names: list[str], verdicts: dict[str, list[ErrorCode] | None]
) -> None:
    mesh = World({"c1": ["a*"], "c2": ["b*"]}).view()
    book = Playbook(api.handle, api.asking(names), api.version, mesh)
    asked: Counter[tuple[str, str]] = Counter()
    said: dict[tuple[str, str], int] = {}
    if not api.owned or any(OWNERS[name[0]] for name in names):
        outcomes = []
        for call in book.asked():
            of_call = list(api.names(call.message))
            asked.update((call.cluster, name) for name in of_call)
            codes = verdicts.get(call.cluster, [ErrorCode.NONE] * 10)
            told = list(zip(of_call, codes or [ErrorCode.REQUEST_TIMED_OUT] * 10, strict=False))
            said |= {(call.cluster, name): code for name, code in told}
            outcomes.append(Unreachable(call.cluster, "down") if codes is None else api.told(told))
        book.answered(*outcomes)

    owners = {name: [OWNERS[name[0]]] if api.owned else ["c1", "c2"] for name in names}
    assert asked == Counter((owner, name) for name, found in owners.items() for owner in found if owner)
    results = list(api.codes(book.answer))
    assert [name for name, _ in results if name] in ([], names)
    assert len(results) == len(names)
    for name, (_, code) in zip(names, results, strict=True):
        wanted = expected(name, api.owned, said)
        assert code == wanted if wanted is not None else code
