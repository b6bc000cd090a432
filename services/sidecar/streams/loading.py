"""Topologies by name: entry points of installed packages, or `package.module:name`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from services.sidecar.streams.records import TopologyError
from services.sidecar.streams.topology import Topology

GROUP = "kafka_mesh.topologies"
ALL = "*"


def references(names: Iterable[str]) -> dict[str, str]:
    """Each topology's place: `package.module:name`, by its name in the settings. TopologyError for an unknown name."""
    known = {one.name: one for one in entry_points(group=GROUP)}
    found: dict[str, str] = {}
    for name in names:
        if name == ALL:
            found |= {one: _place(point) for one, point in known.items()}
        elif ":" in name:
            found[name] = name
        elif name in known:
            found[name] = _place(known[name])
        else:
            raise TopologyError(
                f"streams: no package has a topology {name!r} (entry points of group {GROUP}: "
                f"{', '.join(sorted(known)) or 'none'}); name one of these, or package.module:name"
            )
    return found


def load(reference: str, *, again: bool = False) -> Topology:
    """The topology at this place. `again`: from its module's present source. TopologyError names the fault."""
    module_name, _, name = reference.partition(":")
    try:
        module = sys.modules.get(module_name)
        module = importlib.reload(module) if module is not None and again else importlib.import_module(module_name)
        found = getattr(module, name)
        made = found if isinstance(found, Topology) else found()
    except Exception as error:  # the code of the topology's author may raise anything
        raise TopologyError(f"streams: {reference} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(made, Topology):
        raise TopologyError(f"streams: {reference} is {type(made).__name__}, no Topology, and makes none")
    return made


def _place(point: EntryPoint) -> str:
    return f"{point.module}:{point.attr}"
