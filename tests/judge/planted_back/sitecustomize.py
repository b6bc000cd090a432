"""Plants a mended fault again in every Python process that has this folder on its PYTHONPATH.

`JUDGE_PLANTED` says which one of the reading of control and router (`HOW`). The function that was mended gets its old
behaviour when its module is imported; the product itself knows nothing of it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any


def _one_record_for_each_event(pieces: ModuleType) -> None:
    """1: an event larger than a record of Kafka is offered as one record, again and again."""

    def records_of(position: int, event: bytes) -> Iterator[Any]:
        yield pieces.Record(str(position).encode(), event, [])

    pieces.records_of = records_of  # type: ignore[attr-defined]


def _any_replica_takes_reports(member_report_service: ModuleType) -> None:
    """2: a control that does not lead takes the reports of routers."""

    class AlwaysLeading:
        def require_leading(self) -> None:
            pass

    made = member_report_service.MemberReportService.__init__

    def init(self: Any, journal: Any, *further: Any) -> None:
        made(self, AlwaysLeading(), *further)

    member_report_service.MemberReportService.__init__ = init


def _one_address_of_control(replicas: ModuleType) -> None:
    """2: routers know one address of control."""
    made = replicas.Replicas.__init__

    def init(self: Any, addresses: tuple[str, ...]) -> None:
        made(self, addresses[:1])

    replicas.Replicas.__init__ = init


def _holds_end_by_themselves(discovery: ModuleType) -> None:
    """3: a gateway that has said HELD writes to the old cluster again when its time is over."""

    def hold_ran_out(self: Any, why: str) -> None:
        self._stop_waiting()
        self._move_ended(self._held_revision)
        self._mesh.end_hold()

    discovery.Discovery._hold_ran_out = hold_ran_out


HOW: dict[str, dict[str, Callable[[ModuleType], None]]] = {
    "1": {"mesh.event_log.pieces": _one_record_for_each_event},
    "2": {
        "services.control.api.member_report_service": _any_replica_takes_reports,
        "mesh.rpc.replicas": _one_address_of_control,
    },
    "3": {"services.gateway.downstream.discovery": _holds_end_by_themselves},
}


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes a module as soon as it is there, before others import from it."""

    def __init__(self, changes: dict[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes
        self._loaders: dict[str, importlib.abc.Loader] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._changes or name in self._loaders:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        self._loaders[name] = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loaders[spec.name].create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loaders[module.__name__].exec_module(module)
        self._changes[module.__name__](module)
        print(f"planted: {self._changes[module.__name__].__doc__}", file=sys.stderr, flush=True)


if planted := os.environ.get("JUDGE_PLANTED"):
    sys.meta_path.insert(0, _AfterImport(HOW[planted]))
