"""The tables, clusters and routes in force for the forwarded requests of one API, of one client connection."""

from collections.abc import Callable
from typing import Any, Final

from mesh.acls import Operation, ResourceType
from mesh.routing import RoutingTable
from mesh.tenants import Tenant
from services.gateway import metrics
from services.gateway.authorization.access import Access
from services.gateway.counting import Answered
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.tables import Follower
from services.gateway.requests.memory import Session
from services.gateway.wire.apis import ApiKey

ROUTES_REMEMBERED: Final = 1_000
"""Routes of one connection: one for each topic that its client writes to, or reads. About 0.5 KB each."""

TOPIC: Final = ResourceType.TOPIC

RouteTo = Callable[..., Any]
"""The route of a topic, by its name or id; None if its requests need a plan."""


class Following:
    """See above."""

    __slots__ = (
        "_access",
        "_answers",
        "_api_key",
        "_client_id",
        "_clusters",
        "_edition",
        "_follower",
        "_highest",
        "_known",
        "_lowest",
        "_memory",
        "_mesh",
        "_names",
        "_operation",
        "_proved",
        "_renamed_since",
        "_route_to",
        "_routes",
        "_session",
        "_since",
        "_software",
        "_table",
        "_tables",
        "_tenant",
        "_ways",
    )

    def __init__(
        self,
        api_key: ApiKey,
        since: int,
        renamed_since: int,
        route_to: RouteTo,
        mesh: Mesh,
        session: Session,
        follower: Follower,
    ) -> None:
        """`since`: the first version that may be forwarded; `renamed_since`: the first one with other names."""
        self._api_key = api_key
        self._since = since
        self._renamed_since = renamed_since
        self._route_to = route_to
        self._mesh = mesh
        self._session = session
        self._follower = follower
        self._clusters, self._tables, self._memory = mesh.clusters, mesh.tables, mesh.memory
        self._routes: dict[str | bytes, Any] = {}
        """Routes by the names or ids that the client gives to topics."""
        self._ways: dict[tuple[str, int], Any] = {}
        """Ways by cluster and broker id."""
        self._edition = -1
        """The edition of the tables, ..."""
        self._known: object = None
        """... the knowledge of all clusters ..."""
        self._client_id: str | None = None
        """... and the client that the routes are for."""
        self._software = ("", "")
        self._proved = session.proved
        self._access: Access | None = None
        """The rights of the client; a topic that the client may not use has no route. None: all rights."""
        self._tenant: Tenant | None = None
        """The tenant of the client, whose names are translated. Ids need not be."""
        self._operation = int(Operation.WRITE if api_key is ApiKey.PRODUCE else Operation.READ)
        self._table: RoutingTable
        self._lowest, self._highest = 0, -1
        """The versions that are served."""
        self._answers: dict[int, Answered] = {}
        uses = session.uses
        self._names = uses.produced if api_key is ApiKey.PRODUCE else uses.consumed

    def _forwards(self, client_id: str | None, version: int) -> bool:
        """Whether requests of this version may be forwarded, by all that is in force now."""
        if (
            self._edition != self._tables.edition
            or self._known is not self._clusters.known
            or client_id != self._client_id
            or self._session.software_name != self._software[0]
            or self._session.software_version != self._software[1]
            or self._session.proved is not self._proved
        ):
            self._follow(client_id)
        return self._lowest <= version <= self._highest

    def _follow(self, client_id: str | None) -> None:
        """Follow the tables and clusters in force, for this client."""
        session, served = self._session, self._clusters.served.get(self._api_key)
        self._routes.clear()
        self._ways.clear()
        self._table = self._follower.view(client_id).table
        self._edition, self._known, self._client_id = self._tables.edition, self._clusters.known, client_id
        self._software = (session.software_name, session.software_version)
        self._proved, self._access = session.proved, self._follower.access()
        self._lowest, self._highest = (0, -1) if served is None else (max(served.low, self._since), served.high)
        self._tenant = None if self._access is None else self._access.tenant
        if self._tenant is not None:
            self._lowest = max(self._lowest, self._renamed_since)
        if self._tables.canary is not None:  # while a table is tried, every answer is decoded
            self._highest = -1

    def _look_up(self, key: str | bytes, now: float) -> Any:
        """The route of a topic, looked up anew."""
        mesh = self._mesh
        known = self._follower.view(self._client_id).clusters(self._clusters.known)
        route = self._route_to(key, self._table, known, mesh.mesh_id, self._memory, now)
        access = self._access
        if access is not None and route is not None and not access.allows(self._operation, TOPIC, route.name):
            route = None  # its plan tells the client
        if route is None:
            self._routes.pop(key, None)
        else:
            if len(self._routes) >= ROUTES_REMEMBERED:
                self._routes.clear()
            self._routes[key] = route
            self._names.note(route.name)
        return route

    def _answers_of(self, version: int) -> Answered:
        """The count of answered requests."""
        answers = self._answers.get(version)
        if answers is None:
            answers = self._answers[version] = metrics.answered_of(self._session.calls, self._api_key, version)
        return answers
