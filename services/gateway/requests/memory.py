"""The state that outlives a request: per client connection (`Session`), per gateway process (`Memory`).

No I/O, all bounded.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Protocol

from mesh.connection_security import Mechanism
from mesh.protection.keys import Wrapped
from mesh.protection.policy import Policy as ProtectionPolicy
from mesh.routing import ANONYMOUS
from mesh.scram import Verifier
from mesh.stitches import Policy as StitchPolicy
from mesh.transactions import TransactionLog
from mesh.validation import Policy
from services.gateway.authentication.principal import NOBODY, Principal
from services.gateway.requests.auditing.clients import ClientAudit
from services.gateway.requests.auditing.invalid import InvalidBatch, InvalidTopic
from services.gateway.requests.auditing.withheld import Withheld
from services.gateway.requests.bounded_cache import BoundedCache
from services.gateway.requests.client_calls import ClientCalls
from services.gateway.requests.data_keys import DataKeys, NoDataKeys, SchemaOf
from services.gateway.requests.groups.share_members import ShareMembers
from services.gateway.requests.groups.share_sessions import Member, ShareSession, ShareSessions
from services.gateway.requests.records.acknowledged import AcknowledgedLogs
from services.gateway.requests.records.broker_fetches import BrokerFetches
from services.gateway.requests.records.fetch_sessions import FetchSessions, Marks
from services.gateway.requests.records.past_reads import PastReads
from services.gateway.requests.records.producer_memory import (
    DOUBT_SECONDS,
    DOUBTS_REMEMBERED,
    BatchKey,
    Doubt,
    Passages,
    Refusals,
    Seams,
)
from services.gateway.requests.records.stitched import Part
from services.gateway.requests.rehearsing.topics import Produced, Rehearsed
from services.gateway.requests.telemetry.clients import Telemetry
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.requests.transactions.sight import Sight
from services.gateway.requests.transactions.state import PRODUCER_SECONDS, PRODUCERS_REMEMBERED, Producer
from services.gateway.requests.uses import Uses

OwnUsers = Callable[[], Mapping[str, Mapping[Mechanism, Verifier]] | None]
"""The users of control by name; None until they have come."""

GROUP_HOMES_REMEMBERED = 100_000
"""Groups whose home cluster one gateway remembers: about 20 MB."""
GROUP_HOME_SECONDS = 300.0
"""After this the home of a group is looked up again, because another gateway may have seen the group move."""
SHADOWS_SEEN_TO_SECONDS = 30.0
"""How often shadow topics are compared with the original topics, group by group."""
REFUSAL_TOLD_SECONDS = 60.0
"""How often a log line reports that a group is refused."""


class Bounded(Sized, Protocol):
    """A store with a capacity: when it is full, the oldest or least used entries leave."""

    @property
    def capacity(self) -> int: ...


READ_REPLICAS_REMEMBERED = 10_000
"""Partitions of one client connection that are read from a follower."""
READ_REPLICA_SECONDS = 300.0
"""After this the leader is asked again which replica is the nearest: clients' `metadata.max.age.ms`."""
TOPIC_NAMES_REMEMBERED = 200_000
"""Topics whose name one gateway finds by their id: about 50 MB."""
NAMINGS_REMEMBERED = 10_000
TRANSACTION_LOGS_REMEMBERED = 1_000
"""One log for each cluster that is a home of transactional ids; each holds transactions that are decided but not yet
carried out."""
STRANGE_TOPIC_IDS_REMEMBERED = 10_000
TOPIC_KEYS_REMEMBERED = 1_000
"""Topics with rules of protection or validation."""
KEYS_AWAITED_SECONDS = 300.0
"""After this a share group acquires records again whose keys were away, whatever has become of the keys."""
STRANGE_TOPIC_ID_SECONDS = 2.0
"""So long clusters are not asked again for an id that none of them knew: clients try unknown ids again and again."""


@dataclass(slots=True)
class Memory:
    """The state of one gateway process."""

    group_homes: BoundedCache[str, str] = field(
        default_factory=lambda: BoundedCache(GROUP_HOMES_REMEMBERED, GROUP_HOME_SECONDS)
    )
    """Group id -> name of the cluster whose coordinator the group uses."""
    shadows_seen_to: BoundedCache[str, bool] = field(
        default_factory=lambda: BoundedCache(GROUP_HOMES_REMEMBERED, SHADOWS_SEEN_TO_SECONDS)
    )
    """Groups whose shadow topics were compared a moment ago."""
    on_shadow_fault: Callable[[str], None] = lambda reason: None
    """Counts subscriptions whose shadow topics were not made."""
    refused_groups: BoundedCache[str, bool] = field(
        default_factory=lambda: BoundedCache(GROUP_HOMES_REMEMBERED, REFUSAL_TOLD_SECONDS)
    )
    """Groups that were refused for good, and whose log line was written a moment ago."""
    seams: Seams = field(default_factory=Seams)
    passages: Passages = field(default_factory=Passages)
    doubts: BoundedCache[BatchKey, Doubt] = field(
        default_factory=lambda: BoundedCache(DOUBTS_REMEMBERED, DOUBT_SECONDS)
    )
    """Producers, by partition, one of whose batches was sent and got no answer."""
    refusals: Refusals = field(default_factory=Refusals)
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    share_members: ShareMembers = field(default_factory=ShareMembers)
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    producers: BoundedCache[str, Producer] = field(
        default_factory=lambda: BoundedCache(PRODUCERS_REMEMBERED, PRODUCER_SECONDS)
    )
    """Transactional id -> its producer, in a mesh of several clusters."""
    transaction_logs: BoundedCache[str, TransactionLog] = field(
        default_factory=lambda: BoundedCache(TRANSACTION_LOGS_REMEMBERED, math.inf)
    )
    """Cluster -> the content that was read of its log of transactions."""
    topic_names: BoundedCache[bytes, str] = field(
        default_factory=lambda: BoundedCache(TOPIC_NAMES_REMEMBERED, math.inf)
    )
    """Mesh topic id -> name."""
    topics_looked_through: BoundedCache[tuple[str, int], int] = field(
        default_factory=lambda: BoundedCache(NAMINGS_REMEMBERED, math.inf)
    )
    """Cluster, and the number of the client's names for its topics -> the edition of the topics that `topic_names` has.
    """
    strange_topic_ids: BoundedCache[bytes, bool] = field(
        default_factory=lambda: BoundedCache(STRANGE_TOPIC_IDS_REMEMBERED, STRANGE_TOPIC_ID_SECONDS)
    )
    """Topic ids that no cluster knew at the last question to all."""
    sight: Sight = field(default_factory=Sight)
    """How well the logs of transactions are seen, and since when `read_committed` readers wait."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    """The metrics that clients send about themselves."""
    traffic: ClientTraffic | None = None
    """The traffic of clients is counted there; None: no traffic is counted."""
    own_users: OwnUsers | None = None
    """The users of control, who log in here; None: clients that ask for users hear of those of the clusters."""
    audit: ClientAudit | None = None
    """The results of written records of some topics are reported there; None: no topic is audited."""
    validation: Policy = field(default_factory=Policy)
    """The rules by which batches are validated, of the table in force."""
    new_topics: Policy = field(default_factory=Policy)
    """The rules for names of topics that clients create, of the same table."""
    on_invalid: Callable[[InvalidBatch], None] = lambda batch: None
    """Takes each batch that breaks a rule; returns at once."""
    on_invalid_topic: Callable[[InvalidTopic], None] = lambda topic: None
    """Takes each new topic whose name breaks a rule; returns at once."""

    rehearsals: Mapping[str, Rehearsed] = field(default_factory=dict)
    """The topics of running rehearsals, of the table in force."""
    on_rehearsed: Callable[[list[Produced]], None] = lambda found: None
    """Takes answered produces in the shares of rehearsals; returns at once."""
    acknowledged: AcknowledgedLogs = field(default_factory=AcknowledgedLogs)
    """The topics under standby, of the table in force, and how far they are acknowledged."""
    stitches: StitchPolicy = field(default_factory=StitchPolicy)
    """The logs with parts on several clusters, of the table in force."""
    past_reads: PastReads = field(default_factory=PastReads)
    """The bounds for reads of the past of forks."""
    on_part: Callable[[Part], None] = lambda part: None
    """Counts requests about such logs by the part that they go to."""
    protection: ProtectionPolicy = field(default_factory=ProtectionPolicy)
    """The rules by which values are encrypted and masked, of the table in force."""
    data_keys: DataKeys = field(default_factory=NoDataKeys)
    keys_read: BoundedCache[str, frozenset[Wrapped | bytes]] = field(
        default_factory=lambda: BoundedCache(TOPIC_KEYS_REMEMBERED, math.inf)
    )
    """Topic -> the names of the data keys and schemas of the records that were read last: the next ones mostly need the
    same."""
    keys_awaited: BoundedCache[str, frozenset[Wrapped | bytes]] = field(
        default_factory=lambda: BoundedCache(TOPIC_KEYS_REMEMBERED, KEYS_AWAITED_SECONDS)
    )
    """Topic -> the data keys and schemas of its records that were away at the last question."""
    schemas_written: BoundedCache[str, frozenset[bytes | SchemaOf]] = field(
        default_factory=lambda: BoundedCache(TOPIC_KEYS_REMEMBERED, math.inf)
    )
    """Topic -> the schemas that the records which were written last had to be checked or protected by."""
    on_rebalance: Callable[[str], None] = lambda group: None
    """Gets the group of which a member has heard of a new generation or a new assignment."""
    on_withheld: Callable[[Withheld], None] = lambda batch: None
    """Takes records that are kept from a client, or from a cluster; returns at once."""

    @property
    def stores(self) -> Mapping[str, Bounded]:
        """Stores by name, for the metrics of their sizes; fetch sessions and telemetry have metrics of their own."""
        return {
            "doubts": self.doubts,
            "group_homes": self.group_homes,
            "keys_awaited": self.keys_awaited,
            "keys_read": self.keys_read,
            "producers": self.producers,
            "refusals": self.refusals,
            "refused_groups": self.refused_groups,
            "schemas_written": self.schemas_written,
            "seams": self.seams,
            "share_members": self.share_members,
            "share_sessions": self.share_sessions,
            "shadows_seen_to": self.shadows_seen_to,
            "strange_topic_ids": self.strange_topic_ids,
            "topic_names": self.topic_names,
            "topics_looked_through": self.topics_looked_through,
            "transaction_logs": self.transaction_logs,
        }


class OnItsWay(Protocol):
    """A Produce whose records were sent and are not answered yet."""

    @property
    def sole(self) -> tuple[str, int] | None:
        """Cluster and broker id, if the whole request went there."""
        ...

    def sent_to(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Cluster and broker id; None for a partition that is not in the request, or was refused."""
        ...


@dataclass(slots=True)
class Session:
    """One client connection, as handlers see it.

    A broker keeps some state by a session's id, a member or a producer, wherever their next request comes from. Such
    state is not here, but in `Memory`.
    """

    peer: str = ""
    """Address and port of the client, for log lines."""
    client_id: str | None = None
    software_name: str = ""
    """From ApiVersions v3 and later; empty for clients that do not send it."""
    software_version: str = ""
    asked_node: int | None = None
    """The virtual node that the connection was made to; None if the address of the connection does not name a node."""
    address: str = ""
    """IP address of the client."""
    principal: str = ANONYMOUS
    """The text of `proved`, as rules have it."""
    proved: Principal = NOBODY
    """The identity that the client has proved, by its log-in or its certificate."""
    token: str | None = field(default=None, repr=False)
    """The OAUTHBEARER token by which the client has logged in last."""
    has_full_names: bool = False
    """Another worker has translated the requests of a tenant's client."""
    listener: str = ""
    """The listener that the client has connected to."""
    uses: Uses = field(default_factory=Uses)
    calls: ClientCalls = field(default_factory=ClientCalls)
    producing: list[OnItsWay] = field(default_factory=list)
    """Produce requests in progress, in the order in which they came."""
    share_sessions: dict[Member, ShareSession] = field(default_factory=dict)
    """The share session that a member begins or continues on this connection."""
    broker_fetches: dict[tuple[str, int], BrokerFetches] = field(default_factory=dict)
    """Fetches by cluster and broker id."""
    waiting: Mapping[tuple[str | bytes, int], Marks] = field(default_factory=dict)
    """Partitions of the last Fetch that wait for a transaction, with their last marks (`records.committed`)."""
    read_replicas: BoundedCache[tuple[str, str, int], int] = field(
        default_factory=lambda: BoundedCache(READ_REPLICAS_REMEMBERED, READ_REPLICA_SECONDS)
    )
    """Cluster, topic, partition -> the broker that is nearer to the client than the leader."""
    number: int = field(default_factory=itertools.count(1).__next__)
    """No other connection of this process has this number."""

    def overtakes(self, topic: str, partition: int, place: tuple[str, int]) -> bool:
        """Whether a batch that is sent to `place` now may overtake an earlier batch of this connection.

        The earlier batch is still on its way to another broker, which led the partition.

        If that broker refuses the earlier batch, the new leader may not know the producer yet, and accept the later
        batch as the producer's first. The earlier batch would then be refused for ever.
        """
        for other in self.producing:  # no generator: every Produce comes through here
            sole = other.sole
            if sole is not place and sole != place and other.sent_to(topic, partition) not in (None, place):
                return True
        return False

    def prove(self, principal: Principal) -> None:
        """The client has proved who it is."""
        self.proved, self.principal = principal, str(principal)

    @property
    def reader(self) -> tuple[str, str, str]:
        """Whose receipts those of the connection are: principal, client.id and address."""
        return self.principal, self.client_id or "", self.address

    @property
    def shown_principal(self) -> str:
        """The identity that the client has proved; empty for none."""
        return "" if self.proved is NOBODY else self.principal
