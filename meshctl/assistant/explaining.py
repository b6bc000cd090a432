"""The tool that answers why a group is behind: several questions to control, and their facts as sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from pydantic import Field

from mesh.rpc import instances, topic_moves, topics
from meshctl.assistant.arguments import Text, named
from meshctl.assistant.lag import Known, behind, reasons
from meshctl.assistant.questions import away
from meshctl.connection import PAGE_SIZE, Connection
from meshctl.failures import ExitCode, MeshctlError, from_rpc
from meshctl.output import as_dict

MOST_GROUPS = 5
"""Groups of a topic that the answer explains: those that are furthest behind."""
FEW_POINTS = Duration(seconds=10_800)
"""The step of a course of which only the end is shown."""
MOST_POSITIONS = 20
"""Partitions that the answer has for a group."""

T = TypeVar("T")


def explain_lag(
    connection: Connection,
    group: Annotated[Text, Field(description="A consumer group; or give a topic.")] = "",
    topic: Annotated[Text, Field(description="A topic: its groups that are furthest behind are explained.")] = "",
) -> dict[str, Any]:
    """Why a consumer group lags, or why the groups of a topic lag. For each group, `reasons` has sentences that each
    come from one fact of control. Such a fact is a missing member, a rebalance, a paused consumer of a sidecar, a
    loss by retention, a cluster that is away, or a move. `furthest_behind` has the partitions with the most lag. Lag
    is in records. Rates and ages come from control's samples. `not_known` says which questions control did not
    answer, so a reason may be missing.
    """
    if bool(group) is bool(topic):
        raise MeshctlError("give a group or a topic; one of the two", ExitCode.BAD_REQUEST)
    not_known: list[str] = []
    found = [_explained(connection, each, not_known) for each in ([group] if group else _late(connection, topic))]
    return {"topic": topic, "groups": found, "not_known": list(dict.fromkeys(not_known))}


def _late(connection: Connection, topic: str) -> list[str]:
    """The groups of a topic, the furthest behind first."""
    answer = connection.call(connection.topics.GetTopic, topics.GetTopicRequest(name=named("topics", topic)))
    return [each.group for each in sorted(answer.readers, key=lambda each: -each.lag)[:MOST_GROUPS]]


def _explained(connection: Connection, group: str, not_known: list[str]) -> dict[str, Any]:
    def asked(what: str, question: Callable[[], T], otherwise: T) -> T:
        """A question that may fail: the answers to the others still count."""
        try:
            return question()
        except grpc.RpcError as error:
            not_known.append(f"{what}: {from_rpc(error, connection.endpoint, options={}).message}")
            return otherwise

    answer = connection.call(connection.groups.GetGroup, topics.GetGroupRequest(name=named("groups", group)))
    held = instances.ListInstancesRequest(group=group, page_size=PAGE_SIZE)
    moves = topic_moves.ListTopicMovesRequest(page_size=PAGE_SIZE)
    course = topics.QueryLagRequest(name=named("groups", group), step=FEW_POINTS, page_size=PAGE_SIZE)
    known = Known(
        answer,
        asked(
            "consumers of sidecars",
            lambda: list(connection.call(connection.instances.ListInstances, held).statuses),
            [],
        ),
        asked(
            "moves of topics",
            lambda: list(connection.call(connection.topic_moves.ListTopicMoves, moves).topic_moves),
            [],
        ),
        asked("the state of the mesh", lambda: away(connection.status()), []),
        asked("the lag over time", lambda: list(connection.call(connection.groups.QueryLag, course).partitions), []),
    )
    late = sorted((each for each in answer.positions if behind(each) > 0), key=behind, reverse=True)
    return {
        "group": as_dict(answer.group),
        "reasons": reasons(known),
        "furthest_behind": [{**as_dict(each), "lag": str(behind(each))} for each in late[:MOST_POSITIONS]],
    }
