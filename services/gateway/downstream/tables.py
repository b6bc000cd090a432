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

5. A canary: while a second table is tried (`Tables.trial`), the clients whose name falls among so many in a thousand
   follow that one. The same ones do on every gateway. Meanwhile it is counted how requests end on either side.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from mesh.routing import ClientIdentity, RoutingTable, takes_part
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.nodes import Advertised, VirtualNodes, nodes_for
from services.gateway.requests.topic_names import KnownCluster, RenamedKnowledge, TopicNames

SOFTWARE_REMEMBERED = 1000


class View:
    """A table as clients of one kind see it."""

    __slots__ = ("__weakref__", "_all", "_nodes", "_renamed", "names", "table")

    def __init__(self, table: RoutingTable) -> None:
        self.table = table
        self.names: Mapping[str, TopicNames] = {
            cluster: TopicNames(cluster, table) for cluster in table.clusters if table.renames(cluster)
        }
        """Of clusters that call some topics otherwise than these clients do."""
        self._nodes: dict[tuple[Advertised, str, str], VirtualNodes] = {}
        """By listener and client software."""
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
    """Of these, so that the client sees a failure."""

    def count(self, failed: bool) -> None:
        self.answered += 1
        self.failed += failed


@dataclass(slots=True)
class TrialRun:
    """A table that some clients try, and how requests have ended since it began."""

    table: RoutingTable
    permille: int
    tried: Ends = field(default_factory=Ends)
    others: Ends = field(default_factory=Ends)

    def takes(self, client: ClientIdentity) -> bool:
        return takes_part(client.client_id or client.address, self.permille)


class Tables:
    """See above."""

    def __init__(self) -> None:
        self.in_force = RoutingTable()
        self.trial: TrialRun | None = None
        self.edition = 0
        """Another number whenever a client may have to follow another table."""
        self._views: WeakValueDictionary[int, View] = WeakValueDictionary()
        """By the table of clients, which lives as long as its view."""

    def run(self, table: RoutingTable) -> None:
        """Put a table in force. What was tried is over."""
        self.in_force = table
        self.trial = None
        self.edition += 1

    def try_out(self, trial: TrialRun | None) -> None:
        """Let some clients follow another table, or (None) no more. The same table tried again goes on counting."""
        if self.trial is None and trial is None:
            return
        if self.trial is None or trial is None or self.trial.table.revision != trial.table.revision:
            self.trial = trial
        else:
            self.trial.table = trial.table
        self.edition += 1

    def tries(self, client: ClientIdentity) -> bool:
        """Whether this client follows the table that is tried."""
        return self.trial is not None and self.trial.takes(client)

    def view(self, client: ClientIdentity) -> View:
        """What this client follows now."""
        trial = self.trial
        table = trial.table if trial is not None and trial.takes(client) else self.in_force
        return self.view_of(table.for_client(client))

    def view_of(self, table: RoutingTable) -> View:
        """The one view of a table of clients."""
        view = self._views.get(id(table))
        if view is None:
            view = self._views[id(table)] = View(table)
        return view


class Follower:
    """What one connection follows. It costs a comparison for each request, until something has changed."""

    __slots__ = ("_edition", "_said", "_session", "_tables", "_view", "client", "tries")

    def __init__(self, tables: Tables, session: Session) -> None:
        self._tables = tables
        self._session = session
        self._edition = -1
        self._said: tuple[str | None, str, str] | None = None
        self._view: View | None = None
        self.client = ClientIdentity()
        """As of the last `view`."""
        self.tries = False
        """Whether it follows the table that is tried; as of then, too."""

    def view(self, client_id: str | None) -> View:
        """For a request of this client.id that starts now."""
        session = self._session
        said = (client_id, session.software_name, session.software_version)
        view = self._view
        if view is None or said != self._said or self._edition != self._tables.edition:
            self.client = self.identity(client_id)
            view = self._view = self._tables.view(self.client)
            self.tries = self._tables.tries(self.client)
            self._said, self._edition = said, self._tables.edition
        return view

    def identity(self, client_id: str | None) -> ClientIdentity:
        session = self._session
        return ClientIdentity(
            session.principal, client_id or "", session.software_name, session.software_version, session.address
        )
