"""Answers to the question where a group lives, which is asked of all clusters about all kinds of groups."""

from collections.abc import Mapping
from typing import Any

from services.gateway.requests.groups.group_kinds import CLASSIC, KINDS, Description, GroupKind
from services.gateway.requests.plan import Outcome, Unreachable
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.playbook import Playbook

MEMBERS, EMPTY, SIMPLE, DEAD = ("Stable", "consumer"), ("Empty", "consumer"), ("Empty", ""), ("Dead", "")
"""State and protocol type of a classic group."""


def described(state: tuple[str, str], members: int | None = None) -> DescribeGroupsResponse:
    count = members if members is not None else (1 if state == MEMBERS else 0)
    group = DescribedGroup(group_id="g", group_state=state[0], protocol_type=state[1])
    group.members = [DescribedGroupMember(member_id=f"m{i}") for i in range(count)]
    return DescribeGroupsResponse(groups=[group])


def look_up(
    book: Playbook,
    told: Mapping[tuple[str, int], Description | Unreachable] | None = None,
    silent: str = "",
    **classic: tuple[str, str],
) -> None:
    """Answer the question where a group lives: it is nowhere but where it is said to be. `silent` says nothing."""
    found = dict(told or {}) | {
        (cluster, ApiKey.DESCRIBE_GROUPS): described(state).groups[0] for cluster, state in classic.items()
    }
    kinds = {kind.api_key: kind for kind in KINDS}
    outcomes: list[Outcome | None] = []
    for call in book.pending or ():
        if call.cluster == silent:
            outcomes.append(None)
            continue
        kind = kinds[ApiKey(call.key)]
        nowhere = kind.description(group_id="g", group_state="Dead")
        if kind is not CLASSIC:
            nowhere.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        group = found.get((call.cluster, call.key), nowhere)
        outcomes.append(group if isinstance(group, Unreachable) else answer_of(kind, group))
    book.answered(*outcomes)


def answer_of(kind: GroupKind[Any], group: Description) -> Struct:
    answer: Any = kind.answer()
    answer.groups = [group]
    return answer  # type: ignore[no-any-return]
