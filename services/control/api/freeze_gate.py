"""The door of control while the mesh is frozen: which calls come in. One place for all services, those to come, too.

A call that could change something is refused here, before it has looked at a cluster or created a topic there. The
journal refuses what gets by (`domain/freezing.py`): a scheduled change, or a call that came in before the freeze.
"""

from __future__ import annotations

from google.protobuf.message import Message

from mesh.rpc import instances, replays
from services.control.api.auditing import is_command
from services.control.domain.freezing import refusal
from services.control.domain.sidecar_commands import reads_only
from services.control.store.journal import Journal

PASSES = (
    "Freeze", "Thaw", "CancelScheduledChange", "EndCanary", "RegisterInstance", "RemoveInstance", "ReportOrder",
    "CancelReplay", "TestCluster",
)  # fmt: skip
"""Methods that come in: they change no decision, or take one back."""


class FreezeGate:
    """Asked by `Calls` before each call."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def admit(self, method: str, request: Message) -> None:
        """Refuses a command while the mesh is frozen; one that only checks, or that was answered before, comes in."""
        frozen = self._journal.view.frozen
        if frozen is None or not is_command(method) or method.rpartition("/")[2] in PASSES:
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
