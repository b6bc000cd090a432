"""A request of aiokafka in one exact version."""

from __future__ import annotations

from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion


class Exactly:
    """A request in this version, or none: another version would mean something else."""

    def __init__(self, struct: Any) -> None:
        self._struct = struct

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:
        """As aiokafka's connections ask for it. Raises IncompatibleBrokerVersion."""
        key, version = self._struct.API_KEY, self._struct.API_VERSION
        lowest, highest = versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            raise IncompatibleBrokerVersion(f"the broker has no version {version} of {type(self._struct).__name__}")
        return self._struct
