"""Parts of the sidecar that can read their sources again while it runs: certificates, keys, schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

ALL = "ALL"
Reload = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class Modules:
    """The parts of the sidecar that can reload, by name."""

    def __init__(self, reloads: Mapping[str, Reload]) -> None:
        self._reloads = dict(reloads)

    @property
    def names(self) -> list[str]:
        return sorted(self._reloads)

    async def reload(self, asked: Sequence[str]) -> list[str]:
        """Reloads the named ones, or all; unknown names are left out. Answers those that did."""
        wanted = self.names if not asked or ALL in asked else [name for name in self.names if name in asked]
        done: list[str] = []
        for name in wanted:
            try:
                await self._reloads[name]()
            except (OSError, ValueError) as error:
                log.warning("module keeps what it has: it could not be reloaded", module=name, reason=str(error))
                continue
            log.info("module reloaded", module=name)
            done.append(name)
        return done
