"""A group goes from all clusters that know it, or from none while it is in use."""

from __future__ import annotations

import pytest

from services.gateway.requests.groups import delete_groups
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.plan import Coordinator, Forget, Lane, Unreachable
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ShareGroupDescribeResponse, share_group_describe
from services.gateway.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from services.gateway.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from tests.unit.gateway.requests.playbook import Playbook, World

MEMBERS, EMPTY, SIMPLE, DEAD = ("Stable", "consumer"), ("Empty", "consumer"), ("Empty", ""), ("Dead", "")


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"], "c3": ["cherries"]})


def deleting(world: World, *groups: str, version: int = 2) -> Playbook:
    return Playbook(delete_groups.handle, DeleteGroupsRequest(groups_names=list(groups)), version, world.view())


def described(state: tuple[str, str], error: int = ErrorCode.NONE) -> DescribeGroupsResponse:
    group = DescribedGroup(error_code=error, group_id="g", group_state=state[0], protocol_type=state[1])
    return DescribeGroupsResponse(groups=[group])


def deleted(error: int = ErrorCode.NONE, group: str = "g") -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group, error_code=error)])


def errors_of(book: Playbook) -> dict[str, int]:
    return {result.group_id: result.error_code for result in book.answer.results}


def clusters_asked(book: Playbook) -> list[str]:
    return [call.cluster for call in book.asked()]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_copies_go_when_the_home_has_agreed(world: World, version: int) -> None:
    book = deleting(world, "g", version=version)
    book.answered(described(SIMPLE), described(EMPTY), described(DEAD))
    assert [(call.cluster, call.target, call.version, call.lane) for call in book.asked()] == [
        ("c2", Coordinator("g"), version, Lane.CLIENT),
        ("c3", Coordinator("g"), version, Lane.CLIENT),
    ]
    book.answered(deleted(), deleted(ErrorCode.GROUP_ID_NOT_FOUND))
    assert clusters_asked(book) == ["c1"]
    book.answered(deleted())
    assert errors_of(book) == {"g": ErrorCode.NONE}


def test_a_group_in_use_keeps_its_foreign_offsets(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(SIMPLE), described(MEMBERS), described(EMPTY))
    assert clusters_asked(book) == ["c2"]
    book.answered(deleted(ErrorCode.NON_EMPTY_GROUP))
    assert errors_of(book) == {"g": ErrorCode.NON_EMPTY_GROUP}


def test_a_group_that_only_its_own_cluster_can_describe_keeps_its_foreign_offsets(world: World) -> None:
    """DescribeGroups says nothing of groups of KIP-848."""
    book = deleting(world, "g")
    book.answered(described(SIMPLE), described(DEAD), described(DEAD))
    assert clusters_asked(book) == ["c2", "c3"]
    book.answered(deleted(ErrorCode.GROUP_ID_NOT_FOUND), deleted(ErrorCode.NON_EMPTY_GROUP))
    assert errors_of(book) == {"g": ErrorCode.NON_EMPTY_GROUP}


def test_what_a_broker_says_of_its_refusal_reaches_clients_that_have_room_for_it(world: World) -> None:
    book = deleting(world, "g", version=3)
    book.answered(described(SIMPLE), described(MEMBERS), described(EMPTY))
    told = DeletableGroupResult("g", ErrorCode.GROUP_DELETION_FAILED, "the plugin failed")
    book.answered(DeleteGroupsResponse(results=[told]))
    assert book.answer.results == [told]


def test_an_older_cluster_is_asked_in_its_version_and_one_that_is_silent_is_named(world: World) -> None:
    world.clusters["c2"].versions[ApiKey.DELETE_GROUPS] = VersionRange(0, 2)
    book = deleting(world, "g", version=3)
    book.answered(described(SIMPLE), described(MEMBERS), described(EMPTY))
    [call] = book.asked()
    assert call.version == 2
    book.answered(Unreachable("c2", "connection refused"))
    [result] = book.answer.results
    assert result.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert result.error_message == "The coordinator is not available: cluster c2: connection refused"


def test_offsets_that_tools_committed_go_too(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(SIMPLE), described(SIMPLE), described(DEAD))
    book.answered(deleted(ErrorCode.GROUP_ID_NOT_FOUND))
    assert clusters_asked(book) == ["c1", "c2"]
    book.answered(deleted(), deleted(ErrorCode.GROUP_ID_NOT_FOUND))
    assert errors_of(book) == {"g": ErrorCode.NONE}


def test_a_group_is_not_found_only_if_nobody_knew_it(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(DEAD), described(DEAD, ErrorCode.GROUP_ID_NOT_FOUND), described(DEAD))
    book.answered(*[shared(0)] * 3)
    assert clusters_asked(book) == ["c1", "c2", "c3"]
    book.answered(*[deleted(ErrorCode.GROUP_ID_NOT_FOUND)] * 3)
    assert errors_of(book) == {"g": ErrorCode.GROUP_ID_NOT_FOUND}


def shared(members: int) -> ShareGroupDescribeResponse:
    """A share group with so many members; without any, it does not exist."""
    group = share_group_describe.DescribedGroup(group_id="g", group_state="Stable" if members else "Dead")
    group.members = [share_group_describe.Member(str(number)) for number in range(members)]
    group.error_code = ErrorCode.NONE if members else ErrorCode.GROUP_ID_NOT_FOUND
    return ShareGroupDescribeResponse(groups=[group])


def test_a_share_group_in_use_keeps_its_state_on_clusters_where_it_has_no_members_now(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(DEAD), described(DEAD), described(DEAD))
    book.answered(shared(0), shared(2), shared(0))
    assert clusters_asked(book) == ["c2"]
    book.answered(deleted(ErrorCode.NON_EMPTY_GROUP))
    assert errors_of(book) == {"g": ErrorCode.NON_EMPTY_GROUP}


def test_a_share_group_is_deleted_nowhere_while_a_cluster_does_not_tell_of_it(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(DEAD), described(DEAD), described(DEAD))
    book.answered(shared(0), Unreachable("c2", "down"), shared(0))
    assert clusters_asked(book) == ["c2"]
    book.answered(Unreachable("c2", "down"))
    assert errors_of(book) == {"g": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_members_count_more_than_other_trouble(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(DEAD), described(MEMBERS), described(DEAD))
    book.answered(Unreachable("c1", "gone"), deleted(ErrorCode.NON_EMPTY_GROUP), deleted(ErrorCode.GROUP_ID_NOT_FOUND))
    assert errors_of(book) == {"g": ErrorCode.NON_EMPTY_GROUP}


def test_nothing_is_deleted_while_a_cluster_is_silent(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(EMPTY), described(SIMPLE), Unreachable("c3", "down"))
    assert errors_of(book) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_nothing_is_deleted_where_a_cluster_refuses_to_describe(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(EMPTY), described(SIMPLE), described(DEAD, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert errors_of(book) == {"g": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_a_coordinator_that_moves_meanwhile_is_found_again_by_the_next_try(world: World) -> None:
    book = deleting(world, "g")
    book.answered(described(EMPTY), described(SIMPLE), described(DEAD))
    book.answered(deleted(ErrorCode.NOT_COORDINATOR), deleted(ErrorCode.GROUP_ID_NOT_FOUND))
    assert errors_of(book) == {"g": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert Forget("c1", Coordinator("g")) in book.noted


def test_the_only_cluster_decides_by_itself() -> None:
    book = deleting(World({"c1": ["apples"]}), "g", "h")
    assert clusters_asked(book) == ["c1", "c1"]
    book.answered(deleted(), deleted(ErrorCode.GROUP_ID_NOT_FOUND, "h"))
    assert errors_of(book) == {"g": ErrorCode.NONE, "h": ErrorCode.GROUP_ID_NOT_FOUND}


def test_the_home_of_a_deleted_group_is_forgotten() -> None:
    """The next group of the name may live elsewhere."""
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.memory.group_homes.put("g", "c2", world.now)
    book = deleting(world, "g")
    book.answered(described(DEAD), described(EMPTY))
    book.answered(deleted(ErrorCode.GROUP_ID_NOT_FOUND), deleted())
    assert errors_of(book) == {"g": ErrorCode.NONE}
    assert world.memory.group_homes.get("g", world.now) is None
