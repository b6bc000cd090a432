"""Which routing table the requests of a connection follow: the one place where that is decided.

Theory of operation
1. One table is in force (`Tables.in_force`). Of it each client sees the rules that are about it
   (`RoutingTable.for_client`). What it sees, and what its topics are called by that, is a `View`; clients of one kind
   share it, and it goes with the last of them.
2. A client is known by its principal, its address, the software that it has named (ApiVersions), and the client.id of
   each request. Nearly always that is the same all along. Where several share a connection each request counts as its
   own client's; one without a client.id counts as of a client without.
3. A connection looks its view up again (`Follower`) when another table is in force, or when it has named itself
   otherwise. A request keeps the view that it started with.
4. Who a client is may change while a producer of it lives: then it is one who comes from elsewhere. Its topic has no
   seam behind it, for no rule has moved it; so what it repeats just then may be stored twice.

Should some connections follow another table than the one in force, `Tables.view` is where to say so: it knows the
client, and gives a view of whichever table that one follows. `Follower` asks again whenever `edition` is another one.
"""

from collections.abc import Mapping
from weakref import WeakValueDictionary

from mesh.routing import ClientIdentity, RoutingTable
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.topic_names import KnownCluster, RenamedKnowledge, TopicNames


class View:
    """A table as clients of one kind see it."""

    __slots__ = ("__weakref__", "_all", "_renamed", "names", "table")

    def __init__(self, table: RoutingTable) -> None:
        self.table = table
        self.names: Mapping[str, TopicNames] = {
            cluster: TopicNames(cluster, table) for cluster in table.clusters if table.renames(cluster)
        }
        """Of clusters that call some topics otherwise than these clients do."""
        self._all: Mapping[str, ClusterKnowledge] | None = None
        self._renamed: Mapping[str, KnownCluster] = {}

    def clusters(self, known: Mapping[str, ClusterKnowledge]) -> Mapping[str, KnownCluster]:
        """What is known of clusters, with these clients' names for topics."""
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


class Tables:
    """See above."""

    def __init__(self) -> None:
        self.in_force = RoutingTable()
        self.edition = 0
        """Another number whenever a client may have to follow another table."""
        self._views: WeakValueDictionary[int, View] = WeakValueDictionary()
        """By the table of clients, which lives as long as its view."""

    def run(self, table: RoutingTable) -> None:
        """Put a table in force."""
        self.in_force = table
        self.edition += 1

    def view(self, client: ClientIdentity) -> View:
        """What this client follows now."""
        return self.view_of(self.in_force.for_client(client))

    def view_of(self, table: RoutingTable) -> View:
        """The one view of a table of clients."""
        view = self._views.get(id(table))
        if view is None:
            view = self._views[id(table)] = View(table)
        return view


class Follower:
    """What one connection follows. It costs a comparison for each request, until something has changed."""

    __slots__ = ("_edition", "_said", "_session", "_tables", "_view", "client")

    def __init__(self, tables: Tables, session: Session) -> None:
        self._tables = tables
        self._session = session
        self._edition = -1
        self._said: tuple[str | None, str, str] | None = None
        self._view: View | None = None
        self.client = ClientIdentity()
        """As of the last `view`."""

    def view(self, client_id: str | None) -> View:
        """For a request of this client.id that starts now."""
        session = self._session
        said = (client_id, session.software_name, session.software_version)
        view = self._view
        if view is None or said != self._said or self._edition != self._tables.edition:
            self.client = self.identity(client_id)
            view = self._view = self._tables.view(self.client)
            self._said, self._edition = said, self._tables.edition
        return view

    def identity(self, client_id: str | None) -> ClientIdentity:
        session = self._session
        return ClientIdentity(
            session.principal, client_id or "", session.software_name, session.software_version, session.address
        )
