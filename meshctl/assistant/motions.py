"""The tools that ask about what moves with clusters: parts of logs, forks, drains, standbys, rehearsals."""

from __future__ import annotations

from typing import Annotated

from google.protobuf.message import Message
from pydantic import Field

from mesh.rpc import drains, rehearsals, standbys, topics
from meshctl.assistant.arguments import USUAL_PAGE, Cluster, Name, Size, Text, Token, Topic, named
from meshctl.connection import Connection


def show_topic_parts(connection: Connection, topic: Topic) -> Message:
    """The parts of a topic's log, the oldest first: several if the log is stitched over clusters, or if the topic is a
    fork. `expiry` says when a part needs its cluster no more.
    """
    return connection.call(connection.topics.GetTopicParts, topics.GetTopicPartsRequest(name=named("topics", topic)))


def list_forks(
    connection: Connection,
    of: Annotated[Text, Field(description="Only forks of this topic.")] = "",
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """Topics that begin with the records of another topic, which are not copied, and get records of their own."""
    request = topics.ListTopicForksRequest(source_topic=of, page_size=page_size, page_token=page_token)
    return connection.call(connection.topics.ListTopicForks, request)


def list_drains(connection: Connection, page_size: Size = USUAL_PAGE, page_token: Token = "") -> Message:
    """Drains, which move all topics of a cluster to another one, the newest first, without their topics: the open ones,
    and the last that ended.
    """
    request = drains.ListDrainsRequest(page_size=page_size, page_token=page_token)
    return connection.call(connection.drains.ListDrains, request)


def show_drain(connection: Connection, drain: Annotated[Name, Field(description="Its id.")]) -> Message:
    """One drain with its topics: how far each is, why it stays or has a problem; at the end, what is still there."""
    return connection.call(connection.drains.GetDrain, drains.GetDrainRequest(name=named("drains", drain)))


def show_standby(connection: Connection, cluster: Cluster) -> Message:
    """The copies of a cluster's topics on another cluster. `lag_records` are the records that a fail-over would lose
    now, as far as routers know. Not found: the cluster has no standby.
    """
    request = standbys.GetStandbyRequest(name=named("standbys", cluster))
    return connection.call(connection.standbys.GetStandby, request)


def show_rehearsal(connection: Connection, cluster: Cluster) -> Message:
    """The rehearsal of a candidate cluster, which gets a share of live batches. `figures` has the answers of both
    clusters side by side. Not found: the cluster is not rehearsed.
    """
    return connection.call(connection.rehearsals.GetRehearsal, rehearsals.GetRehearsalRequest(cluster_name=cluster))
