"""Decides which routing table the requests of a connection follow; no other module decides this.

Theory of operation
1. One table is in force (`Tables.in_force`). Each client sees the rules of this table that are about the client
   (`RoutingTable.for_client`). A `View` holds these rules and the client's names of topics. Clients of one kind share
   a view, which ends with the last of them.
2. A client is known by its principal, its address, the software that it has named (ApiVersions), and the client.id of
   each request. These nearly always stay the same. If several clients share a connection, each request counts for the
   client that its client.id names. A request without a client.id counts for a client without one.
3. A connection looks its view up again (`Follower`) when another table is in force, or when the client has named
   another software. A request keeps the view that it started with.
4. The identity of a client may change while its producer lives. The gateway then takes the producer for a new one of
   another client. No rule has moved the topic, so the topic has no seam for this change: records that the producer
   repeats just then may be stored twice.

5. A canary: while a second table is tried (`Tables.canary`), so many clients in a thousand, chosen by their name,
   follow the second table. The same clients follow it on every gateway. The gateway counts how requests end on either
   side.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from mesh.routing import ClientIdentity, RoutingTable, takes_part
from mesh.stitches import Policy as StitchPolicy
from mesh.stitches.codec import policy_from_proto as stitches_from_proto
from mesh.tenants.codec import policy_from_proto as tenants_from_proto
from services.gateway.authorization.access import NO_TENANTS, Access, Authorization, Mode, Required
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.nodes import Advertised, VirtualNodes, nodes_for
from services.gateway.requests.topic_names import KnownCluster, RenamedKnowledge, TopicNames

SOFTWARE_REMEMBERED = 1000


class View:
    """A table as clients of one kind see it."""

    __slots__ = ("__weakref__", "_all", "_nodes", "_renamed", "names", "table")

    def __init__(self, table: RoutingTable, stitches: StitchPolicy) -> None:
        self.table = table
        self.names: Mapping[str, TopicNames] = {
            cluster: TopicNames(cluster, table, stitches.names.get(cluster))
            for cluster in table.clusters
            if table.renames(cluster) or cluster in stitches.names
        }
        """The names of topics, for each cluster that has other names for some topics than these clients."""
        self._nodes: dict[tuple[Advertised, str, str], VirtualNodes] = {}
        """The virtual nodes by listener and client software."""
        self._all: Mapping[str, ClusterKnowledge] | None = None
        self._renamed: Mapping[str, KnownCluster] = {}

    def clusters(self, known: Mapping[str, ClusterKnowledge]) -> Mapping[str, KnownCluster]:
        """The knowledge of the clusters, with these clients' names for topics."""
        if not self.names:
            return known
        if self._all is not known:
            renamed = {
                cluster: RenamedKnowledge(known[cluster], names)
                for cluster, names in self.names.items()
                if cluster in known
            }
            self._all, self._renamed = known, {**known, **renamed}
        return self._renamed

    def nodes(self, advertised: Advertised, name: str, version: str) -> VirtualNodes:
        """The brokers that clients of this software are shown."""
        nodes = self._nodes.get((advertised, name, version))
        if nodes is None:
            if len(self._nodes) >= SOFTWARE_REMEMBERED:  # clients may call themselves what they like
                self._nodes.clear()
            nodes = self._nodes[advertised, name, version] = nodes_for(self.table, advertised, name, version)
        return nodes


@dataclass(slots=True)
class Ends:
    """How requests ended."""

    answered: int = 0
    failed: int = 0
    """The requests among these whose client sees a failure."""

    def count(self, failed: bool) -> None:
        self.answered += 1
        self.failed += failed


@dataclass(slots=True)
class RunningCanary:
    """A table that some clients try, and how requests have ended since it began."""

    table: RoutingTable
    permille: int
    tried: Ends = field(default_factory=Ends)
    others: Ends = field(default_factory=Ends)

    def takes(self, client: ClientIdentity) -> bool:
        return takes_part(client.client_id or client.address, self.permille)


class Tables:
    """See above."""

    def __init__(self, required: Required = Required.BY_POLICY) -> None:
        self.in_force = RoutingTable()
        self.canary: RunningCanary | None = None
        self._required = required
        self.authorization = Authorization.of(None, required)
        """The ACLs of the table in force. They count for the clients that try another table, too."""
        self.tenants = NO_TENANTS
        """The tenants of the table in force, for all clients, too."""
        self.stitches = StitchPolicy()
        """The stitched logs of the table in force, for all clients, too."""
        self.edition = 0
        """Changes whenever a client may have to follow another table."""
        self._views: WeakValueDictionary[int, View] = WeakValueDictionary()
        """The views by the table of clients, which lives as long as its view."""

    def run(self, table: RoutingTable) -> None:
        """Put a table in force. A canary ends."""
        self.in_force = table
        self.canary = None
        policy, known = table.policies.acl_policy, self.authorization.revision
        if policy is None or policy.revision != known or not known:
            self.authorization = Authorization.of(policy, self._required)
        tenants = table.policies.tenant_policy
        if self.tenants.revision != (0 if tenants is None else tenants.revision):
            self.tenants = tenants_from_proto(tenants)
        stitches = table.policies.stitch_policy
        if self.stitches.revision != (0 if stitches is None else stitches.revision):
            self.stitches = stitches_from_proto(stitches)
        self.edition += 1

    def try_out(self, canary: RunningCanary | None) -> None:
        """Let some clients follow another table, or (None) no more. The same table tried again goes on counting."""
        if self.canary is None and canary is None:
            return
        if self.canary is None or canary is None or self.canary.table.revision != canary.table.revision:
            self.canary = canary
        else:
            self.canary.table = canary.table
        self.edition += 1

    def tries(self, client: ClientIdentity) -> bool:
        """Whether this client follows the table that is tried."""
        return self.canary is not None and self.canary.takes(client)

    def view(self, client: ClientIdentity) -> View:
        """The view that this client follows now."""
        canary = self.canary
        table = canary.table if canary is not None and canary.takes(client) else self.in_force
        return self.view_of(table.for_client(client))

    def view_of(self, table: RoutingTable) -> View:
        """The one view of a table of clients."""
        view = self._views.get(id(table))
        if view is None:
            view = self._views[id(table)] = View(table, self.stitches)
        return view


class Follower:
    """Keeps the view of one connection. It costs a comparison for each request, until something has changed."""

    __slots__ = ("_access", "_edition", "_said", "_session", "_tables", "_view", "client", "tries")

    def __init__(self, tables: Tables, session: Session) -> None:
        self._tables = tables
        self._session = session
        self._access: Access | None = None
        self._edition = -1
        self._said: tuple[str | None, str, str, str] | None = None
        self._view: View | None = None
        self.client = ClientIdentity()
        """The client at the last call of `view`."""
        self.tries = False
        """Whether the client followed the table that is tried, at the last call of `view`."""

    def view(self, client_id: str | None) -> View:
        """For a request of this client.id that starts now."""
        session = self._session
        said = (client_id, session.principal, session.software_name, session.software_version)
        view = self._view
        if view is None or said != self._said or self._edition != self._tables.edition:
            self.client = self.identity(client_id)
            view = self._view = self._tables.view(self.client)
            self.tries = self._tables.tries(self.client)
            self._said, self._edition = said, self._tables.edition
        return view

    def access(self) -> Access | None:
        """The rights of the client, for a request that starts now. None: the client may do everything."""
        rules, tenants, proved = self._tables.authorization, self._tables.tenants, self._session.proved
        if rules.mode is Mode.OFF and not tenants.tenants:
            return None
        access = self._access
        if access is None or access.rules is not rules or access.tenants is not tenants or access.proved is not proved:
            access = self._access = Access.of(rules, proved, self._session.address, tenants)
        return None if access.is_free else access

    def identity(self, client_id: str | None) -> ClientIdentity:
        session = self._session
        return ClientIdentity(
            session.principal, client_id or "", session.software_name, session.software_version, session.address
        )
