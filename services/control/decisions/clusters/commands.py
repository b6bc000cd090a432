"""Registering, changing and removing clusters: control first connects to the cluster, then decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import structlog

from mesh.routing import UpstreamCluster
from mesh.routing.codec import (
    TABLE_FORMAT_OF_EXCHANGED_TOKENS,
    TABLE_FORMAT_OF_IDENTITIES,
    cluster_from_proto,
    cluster_to_proto,
)
from mesh.routing.identity_codec import identity_to_proto
from mesh.rpc import admin, events, routing
from services.control.decisions.clusters.probes import Probes
from services.control.decisions.turns import Turns
from services.control.domain.clusters.clusters import Clusters, Sighting, check_spec, expect_revision
from services.control.domain.clusters.identities import set_identity
from services.control.domain.clusters.properties import SecretPlaces, client_only
from services.control.domain.errors import InvalidField, NotAllowed, Refusal, Unavailable
from services.control.domain.stitches.logs import topics_on
from services.control.domain.view import MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.checks import check_with_librdkafka
from services.control.upstream.connections import Connections, SeenCluster, UnreachableError

log = structlog.get_logger(__name__)

AnswerCluster = Callable[[str, MeshView], StoredAnswer | None]
"""The answer to store for a request_id, given the cluster's name and the view after the decision."""


@dataclass(frozen=True, slots=True)
class Test:
    """The result of connecting to a cluster: the seen cluster, or the reason why control did not reach it."""

    cluster: UpstreamCluster
    seen: SeenCluster | None
    reason: str = ""
    topics: Collection[str] = ()
    """The names of its topics, if the caller asked for them."""


class ClusterDecisions:
    """Commands about clusters."""

    def __init__(
        self,
        journal: Journal,
        turns: Turns,
        connections: Connections,
        is_home: Callable[[str, Sequence[str]], bool],
        secret_places: SecretPlaces,
        probe_interval_s: float,
        too_old: Callable[[int], Sequence[tuple[str, str, str]]],
    ) -> None:
        """`too_old`: the kind, the name and the version of each member that does not read a format of tables."""
        self.probes = Probes(journal, connections, probe_interval_s)
        self._secret_places = secret_places
        self._too_old = too_old
        self._journal = journal
        self._turns = turns
        self._connections = connections
        self._is_home = is_home

    @property
    def clusters(self) -> Clusters:
        view = self._journal.view
        return Clusters(view.state.effective, view.next_ordinal)

    async def test(self, spec: routing.ClusterSpec, *, with_topics: bool = False) -> Test:
        """Checks a configuration and connects; registers nothing."""
        check_spec(spec)
        await self._check_configuration(spec)
        cluster = cluster_from_proto(routing.UpstreamCluster(spec=spec))
        try:
            seen = await self._connections.describe(cluster)
            return Test(cluster, seen, topics=await self._connections.topics(cluster) if with_topics else ())
        except UnreachableError as error:
            return Test(cluster, None, str(error))
        finally:
            if spec.cluster_name not in self._journal.view.state.effective.clusters:
                self._connections.forget(spec.cluster_name)

    async def register(
        self,
        spec: routing.ClusterSpec,
        caller: Caller,
        *,
        allow_unreachable: bool,
        validate_only: bool,
        answer: AnswerCluster,
    ) -> events.ClusterRegistered | None:
        """The appended event, or the event that would follow with `validate_only`.

        None when the cluster is registered already.
        """

        async def decide() -> events.ClusterRegistered | None:
            if validate_only:
                return self.clusters.register(spec, sighting)
            view = await self._journal.first_time(caller)
            event = self.clusters.register(spec, sighting)
            await self._append(spec.cluster_name, event, caller, view, answer)
            return event

        check_spec(spec)
        if not validate_only:
            await self._journal.first_time(caller)
        self.clusters.register(spec, Sighting())  # refuses what it can without a connection to the cluster
        sighting = await self._look(spec, allow_unreachable)
        return await (decide() if validate_only else self._turns.take(decide()))

    async def update(
        self,
        name: str,
        spec: routing.ClusterSpec,
        paths: Collection[str],
        caller: Caller,
        *,
        expected_revision: int,
        allow_unreachable: bool,
        validate_only: bool,
        answer: AnswerCluster,
    ) -> events.ClusterUpdated | None:
        """The appended event, or the event that would follow with `validate_only`; None when nothing changes."""

        async def decide() -> events.ClusterUpdated | None:
            view = self._journal.view if validate_only else await self._journal.first_time(caller)
            self.clusters.get(name)
            expect_revision(name, expected_revision, view.cluster_revisions[name])
            merged = self.clusters.merged(name, spec, paths)
            sighting = await self._look(merged, allow_unreachable)
            event = self.clusters.update(merged, sighting)
            if not validate_only:
                await self._append(name, event, caller, view, answer)
            return event

        return await (decide() if validate_only else self._turns.take(decide()))

    async def set_identity(
        self, request: admin.SetClusterIdentityRequest, name: str, caller: Caller, answer: AnswerCluster
    ) -> events.ClusterUpdated | None:
        """The appended event, or the event that would follow with `validate_only`; None when nothing changes."""

        async def decide() -> events.ClusterUpdated | None:
            view = self._journal.view if request.validate_only else await self._journal.first_time(caller)
            known = self.clusters.get(name)
            expect_revision(name, request.expected_revision, view.cluster_revisions[name])
            wanted = await self._identity(request, name)
            event = set_identity(known, wanted, self._secret_places.check)
            if event is not None and event.cluster.HasField("identity"):
                self._check_understood(event.cluster.identity.mode)
            if not request.validate_only:
                await self._append(name, event, caller, view, answer)
            return event

        return await (decide() if request.validate_only else self._turns.take(decide()))

    async def _identity(self, request: admin.SetClusterIdentityRequest, name: str) -> routing.UpstreamIdentity:
        """The wanted identity: given, or as it was."""
        match request.WhichOneof("to"):
            case "identity":
                return request.identity
            case "as_of_revision":
                revision, view = request.as_of_revision, self._journal.view
                if not 1 <= revision <= view.position:
                    text = f"{revision} is no revision so far: the log has the positions 1 to {view.position}"
                    raise InvalidField("as_of_revision", text)
                then = (await self._journal.view_at(revision)).state.effective.clusters.get(name)
                if then is None:
                    raise InvalidField("as_of_revision", f"cluster {name!r} was not registered at revision {revision}")
                if then.identity is not None:
                    return identity_to_proto(then.identity)
                return routing.UpstreamIdentity(mode=routing.IDENTITY_MODE_MESH)
        raise InvalidField("to", "say what to set: one of identity and as_of_revision")

    def _check_understood(self, mode: routing.IdentityMode.ValueType) -> None:
        """Members of older releases pass over the identity, or refuse a table with a mode that they do not know."""
        exchanges = mode == routing.IDENTITY_MODE_EXCHANGE
        for kind, name, version in self._too_old(
            TABLE_FORMAT_OF_EXCHANGED_TOKENS if exchanges else TABLE_FORMAT_OF_IDENTITIES
        ):
            text = (
                f"{kind} {name!r} is of release {version or 'unknown'}, which does not know this identity of clients: "
                "they would reach the cluster as the mesh, or not at all. Upgrade it, or stop it, then retry"
            )
            if kind == "router":
                raise NotAllowed("ROUTER_TOO_OLD", f"members/{name}", text)
            raise NotAllowed("GATEWAY_TOO_OLD", f"members/{name}", text)

    async def remove(
        self,
        name: str,
        caller: Caller,
        *,
        expected_revision: int,
        validate_only: bool,
        answer: Callable[[int], StoredAnswer | None],
    ) -> int:
        """Position of the event; 0 with `validate_only`."""

        async def decide() -> int:
            view = self._journal.view if validate_only else await self._journal.first_time(caller)
            event = self.clusters.remove(name, view.users_of(name), topics_on(view.state.effective, name))
            expect_revision(name, expected_revision, view.cluster_revisions[name])
            if validate_only:
                return 0
            new = await self._journal.append(
                [Draft(f"clusters/{name}", event)],
                caller,
                view,
                rests_on=rules_and_clusters,
                answer=lambda new, _: answer(new[0].position),
            )
            self._connections.forget(name)
            self.probes.forget(name)
            return new[0].position

        return await (decide() if validate_only else self._turns.take(decide()))

    async def run(self) -> None:
        """Asks all clusters for ever, and records the ids of those that now answer."""
        await self.probes.run(self._learn)

    async def _learn(self, name: str, seen: SeenCluster) -> None:
        """Records the Kafka cluster id of a cluster that now answers, and was not reached when it was registered."""
        known = self._journal.view.state.effective.clusters.get(name)
        if known is None or known.kafka_cluster_id or not seen.kafka_cluster_id or self._journal.why_not_leading:
            return

        async def decide() -> None:
            caller = Caller(CONTROL, "the cluster was reached for the first time")
            view = await self._journal.first_time(caller)
            home = self._is_home(seen.kafka_cluster_id, known.bootstrap_servers)
            spec = cluster_to_proto(self.clusters.get(name)).spec
            event = self.clusters.update(spec, Sighting(seen.kafka_cluster_id, home))
            await self._append(name, event, caller, view, lambda *_: None)

        try:
            await self._turns.take(decide())
        except (Refusal, StoreUnavailableError) as error:
            log.warning("the id of a cluster could not be recorded", cluster=name, reason=str(error))

    async def _append(
        self,
        name: str,
        event: events.ClusterRegistered | events.ClusterUpdated | None,
        caller: Caller,
        view: MeshView,
        answer: AnswerCluster,
    ) -> None:
        drafts = [] if event is None else [Draft(f"clusters/{name}", event)]
        if drafts or caller.request_id:
            await self._journal.append(
                drafts, caller, view, rests_on=rules_and_clusters, answer=lambda _, after: answer(name, after)
            )

    async def _look(self, spec: routing.ClusterSpec, allow_unreachable: bool) -> Sighting:
        test = await self.test(spec)
        untouched = client_only([*spec.producer_config, *spec.consumer_config])
        if untouched:
            log.info(
                "properties that steer only the mesh's own clients", cluster=spec.cluster_name, properties=untouched
            )
        if test.seen is None:
            if not allow_unreachable:
                raise Unavailable(
                    "CLUSTER_UNREACHABLE",
                    f"{test.reason}; check its address and security; to register it all the same set allow_unreachable",
                )
            self.probes.note_failure(spec.cluster_name, test.reason)
            return Sighting(home=self._is_home("", spec.bootstrap_servers))
        self.probes.note(spec.cluster_name, test.seen)
        kafka_id = test.seen.kafka_cluster_id
        return Sighting(kafka_id, self._is_home(kafka_id, spec.bootstrap_servers))

    async def _check_configuration(self, spec: routing.ClusterSpec) -> None:
        producer, consumer = dict(spec.producer_config), dict(spec.consumer_config)
        self._secret_places.check("spec.producer_config", producer)
        self._secret_places.check("spec.consumer_config", consumer)
        await self._connections.run(lambda: check_with_librdkafka("spec", producer, consumer))


def rules_and_clusters(view: MeshView) -> object:
    """All on which decisions about clusters and rules depend. Policies may change meanwhile."""
    return view.rules_revision, view.state.effective.clusters, view.rollout and view.rollout.position
