"""A row of the table of APIs: which function serves which versions, in which order, and how far its requests go."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.plan import Handle, MeshView, Plan, Request
from services.gateway.requests.traffic.calls import watched


class Order(Enum):
    """When a request may start, relative to the others of its client connection. Answers always leave in order."""

    ONE_BY_ONE = "one by one"
    """When all earlier requests of this kind are answered, as on a broker."""
    PIPELINED = "pipelined"
    """When all earlier pipelined requests have sent their first calls: Produce."""
    AT_ONCE = "at once"
    """Immediately: the request needs no upstream and changes nothing."""


class Reach(Enum):
    """How far requests of an API go, and so which of its versions can be offered."""

    OWN = "always"
    """The client's version never reaches a broker: the gateway offers all its versions, whatever the clusters speak."""
    ALL_CLUSTERS = "if all clusters speak it"
    """One request concerns several clusters: the gateway offers the versions that all of them speak."""
    ONE_OWNER = "if any cluster speaks it"
    """Each item has one owner: the gateway offers the versions that any cluster speaks. For the other clusters
    `versions.ask_fitting` takes an older version if no field is lost by it, else the item is refused."""


REMOVED_IN: Final = "4.0"
"""The release of Kafka that removed the versions of `Older` (KIP-896)."""


@dataclass(frozen=True, slots=True)
class Older:
    """Versions that clusters need not support: the gateway translates them to those of `Handler.handle`."""

    versions: VersionRange
    """Older versions end just before the first of `Handler.versions`."""
    handle: Handle


@dataclass(frozen=True, slots=True)
class Handler:
    """A row of the table of APIs."""

    api_key: int
    versions: VersionRange
    """The versions that `handle` serves."""
    handle: Handle
    split: str
    """How the request is divided over clusters: for readers, and for the table of APIs in the docs."""
    merge: str
    """How the answers become one."""
    order: Order = Order.ONE_BY_ONE
    reach: Reach = Reach.ALL_CLUSTERS
    counts_itself: bool = False
    """Its calls are about topics: the handler reports to traffic which records they move."""
    older: Older | None = None
    """Offered with `versions`, unless clusters have removed the lowest of `versions`: offered versions have no gaps."""

    def plan(self, request: Request, mesh: MeshView) -> Plan:
        """How a request is carried out, with its call counted."""
        plan = self.handle_of(request.version)(request, mesh)
        return plan if self.counts_itself else watched(plan, request, mesh)

    def handle_of(self, version: int) -> Handle:
        return self.older.handle if self.older and version in self.older.versions else self.handle

    def removed_in(self, version: int) -> str:
        """The release of Kafka whose brokers no longer speak this version; empty if all speak it."""
        return REMOVED_IN if self.older and version in self.older.versions else ""

    def widened(self, offered: VersionRange) -> VersionRange:
        """The offered versions with the older ones, if there is no gap between."""
        if self.older is None or offered.low > self.versions.low:
            return offered
        return VersionRange(self.older.versions.low, offered.high)
