"""Decides which calls control admits while the mesh is frozen. One place for all services, also for later ones.

A call that could change something is refused here, before it asks a cluster or creates a topic there. The journal
refuses changes that do not pass here (`domain/change_control/freezing.py`): a scheduled change, or a call admitted
before the freeze.
"""

from __future__ import annotations

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
        if isinstance(request, instances.PlaceOrderRequest) and reads_only(request.command):
            return
        if isinstance(request, replays.StartReplayRequest) and request.spec.dry_run:
            return
        options = getattr(request, "options", request)
        if getattr(options, "validate_only", False):
            return
        request_id = getattr(options, "request_id", "")
        if request_id and await self._journal.store.answer_of(request_id) is not None:
            return
        raise refusal(frozen)
