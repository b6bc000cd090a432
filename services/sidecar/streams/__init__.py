"""Topologies: stateful processing of records between topics. See `docs/how-to/topologies.md`."""

from services.sidecar.formats import Format
from services.sidecar.streams.records import OnError, TopologyError, Tumbling, Windowed
from services.sidecar.streams.topology import Stream, Table, Topology, WindowedTable

__all__ = ["Format", "OnError", "Stream", "Table", "Topology", "TopologyError", "Tumbling", "Windowed", "WindowedTable"]
