"""The subscriptions that control has declared for this sidecar: on disk first, so that a restart needs no control.

The sidecar tells control with each beat which content it has. Control answers with the whole content if it differs, so
a sidecar that was away for long hears all that changed. A control of an earlier release answers nothing, and the
subscriptions stay as they are.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import structlog
from google.protobuf.message import DecodeError

from mesh.rpc import subscriptions
from services.sidecar.state.state_file import StateFile, StateWriter

log = structlog.get_logger(__name__)


class DeclaredSubscriptions:
    """The present content."""

    def __init__(self, file: StateFile | None, *, are_taken: bool) -> None:
        """`file`: where the content outlives the process, if it does; `are_taken`: whether this sidecar runs any."""
        self.are_taken = are_taken
        self.reports: Callable[[], Sequence[subscriptions.SubscriptionReport]] = lambda: ()
        """The reports for control about the sidecar's subscriptions, of all sources."""
        self.changed = asyncio.Event()
        """Set when the content is another."""
        self._content = subscriptions.SubscriptionsOfSidecar()
        self._file = file
        self._writer = None if file is None else StateWriter(file, self._encoded)

    @property
    def digest(self) -> str:
        """Names the content."""
        return self._content.digest

    def __iter__(self) -> Iterator[subscriptions.DeclaredSubscription]:
        yield from self._content.subscriptions

    def load(self) -> None:
        """The content of the process before this one. Blocks; OSError from the disk."""
        found = None if self._file is None or not self.are_taken else self._file.load()
        if self._file is None or found is None:
            return
        try:
            self._content = subscriptions.SubscriptionsOfSidecar.FromString(found)
        except DecodeError as error:
            self._file.set_aside(f"no subscriptions of control ({error!r})")

    async def take(self, content: subscriptions.SubscriptionsOfSidecar) -> None:
        """Takes the content that control has now. It is on disk, or the log has the reason, before it counts."""
        self._content = content
        if self._writer is not None:
            await self._writer.written()
        names = [one.name for one in content.subscriptions]
        log.info("control has declared the subscriptions of this sidecar", names=names)
        self.changed.set()

    def _encoded(self) -> bytes:
        return self._content.SerializeToString(deterministic=True)
