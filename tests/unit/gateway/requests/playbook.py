"""Plans without sockets: a playbook plays the I/O's part, one command after the other.

book = Playbook(metadata, MetadataRequest(topics=None), version=9, mesh=mesh)
calls = book.asked()                 # the plan yielded Ask; these are its calls
book.answered(response_of_c1, Unreachable("c2", "connection refused"))
assert book.answer == MetadataResponse(...)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mesh.routing import ExactName, ForwardingRule, NamePrefix, RoutingTable, RuleVersion, UpstreamCluster
from mesh.rpc import kafka_changes
from services.gateway.requests.changes import Change, NotChanged
from services.gateway.requests.conversions import Convert, NotConverted
from services.gateway.requests.data_keys import FindKeys, Found
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, TopicKnowledge, VersionRange
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.nodes import Advertised, virtual_nodes
from services.gateway.requests.plan import (
    Answer,
    Ask,
    Call,
    Command,
    Forget,
    Gather,
    Handle,
    MeshView,
    Outcome,
    Refresh,
    Request,
    Stale,
    Unreachable,
)
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.schema import Struct

C = TypeVar("C")
A = TypeVar("A")

VERSIONS = {handler.api_key: handler.versions for handler in HANDLERS.values()}
UPSTREAM_VERSIONS = VERSIONS | {ApiKey.DESCRIBE_PRODUCERS: VersionRange(0, 0)}  # of what the gateway itself asks


@dataclass(slots=True)
class World:
    """A mesh in three lines: `World({"c1": ["apples"], "c2": ["bananas", "b-*"]}).view()`."""

    topics: Mapping[str, Iterable[str]]
    """Cluster -> topics that its rules name; one that ends with `*` is a prefix."""
    partitions: int = 1
    partition_count: int = 0
    by_node_id: bool = False
    session: Session = field(default_factory=lambda: Session("127.0.0.1:5", "test"))
    memory: Memory = field(default_factory=Memory)
    upstream_versions: Mapping[int, VersionRange] = field(default_factory=lambda: dict(UPSTREAM_VERSIONS))
    now: float = 1000.0
    time_ms: int = 1_700_000_000_000
    poll_bytes: int = 4 << 20
    clusters: dict[str, ClusterKnowledge] = field(init=False, default_factory=dict)
    table: RoutingTable = field(init=False)

    def __post_init__(self) -> None:
        rules: list[RuleVersion] = []
        upstream: list[UpstreamCluster] = []
        for ordinal, (cluster, names) in enumerate(self.topics.items(), start=1):
            upstream.append(UpstreamCluster(cluster, (f"{cluster}:9092",), ordinal, self.partition_count))
            knowledge = ClusterKnowledge(cluster, versions=dict(self.upstream_versions), down=None)
            knowledge.brokers = {ordinal: BrokerAddress(ordinal, cluster, 9092, None)}
            knowledge.controller_id = ordinal
            for name in names:
                match = NamePrefix(name[:-1]) if name.endswith("*") else ExactName(name)
                rules.append(RuleVersion(ForwardingRule(f"r{len(rules)}", match, cluster), len(rules), 1))
                if not name.endswith("*"):
                    knowledge.topics[name] = TopicKnowledge(name, name.encode().ljust(16), (ordinal,) * self.partitions)
                    knowledge.topic_names[name.encode().ljust(16)] = name
            self.clusters[cluster] = knowledge
        self.table = RoutingTable(1, upstream, rules)

    def add_rule(self, rule: ForwardingRule) -> None:
        """The operator adds a rule, after all others."""
        versions = [*self.table.versions, RuleVersion(rule, float(len(self.table.versions)), self.table.revision + 1)]
        self.table = RoutingTable(self.table.revision + 1, self.table.clusters.values(), versions)

    def move(self, topic: str, cluster: str, upstream_topic: str = "") -> None:
        """A rule change sends the topic to another cluster, where it exists too, or gives it another name there."""
        revision = self.table.revision + 1
        versions = [
            replace(v, until_revision=revision) if v.alive and v.rule.match == ExactName(topic) else v
            for v in self.table.versions
        ]
        rule = ForwardingRule(f"r{revision}", ExactName(topic), cluster, upstream_topic=upstream_topic)
        versions.append(RuleVersion(rule, float(revision), revision))
        self.table = RoutingTable(revision, self.table.clusters.values(), versions)
        there = self.clusters[cluster]
        there.topics[topic] = TopicKnowledge(topic, topic.encode().ljust(16), (next(iter(there.brokers)),))

    def view(self) -> MeshView:
        return MeshView(
            table=self.table,
            clusters=self.clusters,
            nodes=virtual_nodes(self.table, Advertised("mesh", 19092), by_node_id=self.by_node_id),
            session=self.session,
            memory=self.memory,
            served=dict(VERSIONS),
            mesh_id="mesh-id",
            now=self.now,
            clock=lambda: self.now,
            time_ms=self.time_ms,
            random_bits=lambda bits: (1 << bits) - 2,
            poll_bytes=self.poll_bytes,
        )


class Playbook:
    """One request's plan, played step by step. Refresh, Stale and Forget are taken down and answered with None; what
    is to be converted is, unless `not_converted` says that it can't be."""

    def __init__(
        self,
        handle: Handle,
        message: Struct,
        version: int,
        mesh: MeshView,
        client_id: str = "test",
        *,
        not_converted: NotConverted | None = None,
    ) -> None:
        frame = memoryview(bytearray(encode_request(message, version, 7, client_id)))
        request = Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
        self._plan = handle(request, mesh)
        self._answer: Answer | None = None
        self._command: Command | None = None
        self._not_converted = not_converted
        self.noted: list[Refresh | Stale | Forget] = []
        """The commands that asked for no call."""
        self._step(None)

    def _step(self, result: Any) -> None:
        try:
            command = self._plan.send(result)
            while isinstance(command, (Refresh, Stale, Forget, Convert, FindKeys)):
                if isinstance(command, FindKeys):
                    found: list[Found] = []
                    command.keys.find(command.wanted, found.append)
                    command = self._plan.send(found[0])
                elif isinstance(command, Convert):
                    command = self._plan.send(self._not_converted or command.function(*command.arguments))
                else:
                    self.noted.append(command)
                    command = self._plan.send(None)
            self._command = command
        except StopIteration as stop:
            self._command, self._answer = None, stop.value

    def _expected(self, kind: type[C]) -> C:
        assert isinstance(self._command, kind), f"expected {kind.__name__}, the plan yielded {self._command!r}"
        return self._command

    def close(self) -> None:
        """The exchange gives the plan up."""
        self._plan.close()

    def asked(self) -> tuple[Call, ...]:
        """The calls of the Ask that the plan waits for."""
        return self._expected(Ask).calls

    def waits_for_preliminaries(self) -> bool:
        """Whether the calls that the request is about come later."""
        return self._expected(Ask).preliminary

    def gathers(self) -> Gather:
        return self._expected(Gather)

    def answered(self, *outcomes: Outcome | None) -> None:
        """Resume the plan with one outcome for each call."""
        assert isinstance(self._command, (Ask, Gather)), "the plan waits for no answers"
        assert len(outcomes) == len(self._command.calls), "one outcome for each call"
        self._step(tuple(outcomes))

    def changes(self) -> kafka_changes.KafkaChangeRequest:
        """The change that control shall make."""
        return self._expected(Change).request

    def decided(self, outcome: kafka_changes.KafkaChangeResponse | NotChanged) -> None:
        """Resume the plan with control's answer."""
        self.changes()
        self._step(outcome)

    def all_unreachable(self) -> None:
        assert isinstance(self._command, (Ask, Gather)), "the plan waits for no answers"
        self.answered(*(Unreachable(call.cluster, "down") for call in self._command.calls))

    @property
    def pending(self) -> tuple[Call, ...] | None:
        """The calls that the plan waits for, in whichever way; None when it has ended."""
        return self._command.calls if isinstance(self._command, (Ask, Gather)) else None

    @property
    def answer(self) -> Any:
        assert self._command is None, f"the plan has not ended: it yielded {self._command!r}"
        return self._answer
