"""Decides which calls control admits while the mesh is frozen. One place for all services, also for later ones.

A call that could change something is refused here, before it asks a cluster or creates a topic there. The journal
refuses changes that do not pass here (`domain/change_control/freezing.py`): a scheduled change, or a call admitted
before the freeze.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from mesh.rpc import instances, replays
from mesh.rpc.method_access import access_of, decides
from services.control.domain.change_control.freezing import refusal
from services.control.domain.sidecars.commands import reads_only
from services.control.store.journal import Journal


class FreezeGate:
    """Asked by `Calls` before each call."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def admit(self, method: str, request: Message) -> None:
        """Refuses a command while the mesh is frozen. Admits a command that only checks, or was answered before."""
        frozen = self._journal.view.frozen
        if frozen is None or not decides(method) or access_of(method).when_frozen:
            return
        if only_checks(request):
            return
        request_id = getattr(options_of(request), "request_id", "")
        if request_id and await self._journal.store.answer_of(request_id) is not None:
            return
        raise refusal(frozen)


def only_checks(request: Message) -> bool:
    """Whether the request of a command asks for no change."""
    if isinstance(request, instances.PlaceOrderRequest):
        return reads_only(request.command)
    if isinstance(request, replays.StartReplayRequest):
        return request.spec.dry_run
    return bool(getattr(options_of(request), "validate_only", False))


def options_of(request: Message) -> Any:
    """The part of a request that has its reason, its request_id and validate_only."""
    return getattr(request, "options", request)
