"""All topologies of a sidecar, by their names. A topology that cannot run does not stop the others."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping

import structlog

from services.sidecar.streams.loading import load
from services.sidecar.streams.records import TopologyError
from services.sidecar.streams.running_topology import RunningTopology, StreamStatus, Surroundings
from services.sidecar.streams.worker import State

log = structlog.get_logger(__name__)


class UnknownStreamError(Exception):
    """The sidecar has no topology of this name."""


class Streams:
    """The topologies of one sidecar, made within a running event loop."""

    def __init__(
        self,
        references: Mapping[str, str],
        surroundings: Surroundings,
        *,
        clean_up: bool = False,
        folder: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        """`references`: places of topologies, by their names in the settings. `folder`: is closed with the streams."""
        self._folder = folder
        self._references = dict(references)
        self._surroundings = surroundings
        self._clean_up = clean_up
        self._running: dict[str, RunningTopology] = {}
        self._places: dict[str, str] = {}
        self._unloaded: dict[str, str] = {}
        """The reason for each topology that could not be loaded, by its name in the settings."""

    async def start(self) -> None:
        """Loads the topologies, and starts them in the background."""
        for name, reference in self._references.items():
            try:
                topology = await asyncio.to_thread(load, reference)
                if topology.name in self._running:
                    raise TopologyError(
                        f"streams: {reference} is called {topology.name!r}, as {self._places[topology.name]} is; "
                        "their state would be one; rename one of them"
                    )
                running = RunningTopology(topology, self._surroundings)
            except TopologyError as error:
                log.error("a topology cannot be loaded", stream=name, reason=str(error))
                self._unloaded[name] = str(error)
                continue
            self._running[topology.name] = running
            self._places[topology.name] = reference
            running.start(clean_up=self._clean_up)

    async def stop(self) -> None:
        """Stops all topologies after their present rounds."""
        await asyncio.gather(*(one.stop() for one in self._running.values()))
        if self._folder is not None:
            self._folder.cleanup()

    def statuses(self) -> list[StreamStatus]:
        """The status of each topology."""
        unloaded = [StreamStatus(name, State.FAILED, why, [], [], 0, 0, 0) for name, why in self._unloaded.items()]
        return [*(one.status() for one in self._running.values()), *unloaded]

    def named(self, name: str) -> RunningTopology:
        """The topology of this name. UnknownStreamError when the sidecar has no such topology."""
        found = self._running.get(name)
        if found is None:
            known = ", ".join(sorted(self._running)) or "none"
            raise UnknownStreamError(f"There is no topology {name[:200]!r} here (running: {known})")
        return found

    async def replace(self, name: str) -> StreamStatus:
        """Loads a topology's definition anew, and continues with the new definition. TopologyError, OSError or Fault
        when it cannot; then the old definition goes on.
        """
        running = self.named(name)
        reference = self._places[name]
        topology = await asyncio.to_thread(load, reference, again=True)
        if topology.name != name:
            raise TopologyError(f"streams: {reference} is called {topology.name!r} by now, and not {name!r}")
        await running.replace(topology)
        return running.status()

    async def fault(self) -> str | None:
        """The names and states of topologies that keep the sidecar from being ready; None if all are ready."""
        found = [
            f"{one.name} is {one.state.value}" + (f" ({one.reason})" if one.reason else "")
            for one in self.statuses()
            if one.state not in (State.RUNNING, State.REBALANCING)
        ]
        return "; ".join(found) or None
