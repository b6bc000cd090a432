"""The outcomes of the last orders, in memory and in a file: a repeated order gets the same outcome."""

import orjson
from google.protobuf import json_format

from mesh.rpc import events
from services.sidecar.state.state_file import StateFile, StateWriter

KEPT = 500
"""Control has given up an older one long since: it lets a sidecar have 100 open ones."""


class Outcomes:
    """Outcomes by the names of their orders; of more than `KEPT` the last ones."""

    def __init__(self, file: StateFile | None = None) -> None:
        """`file`: where they outlive the process, if they do."""
        self._file = file
        self._writer = None if file is None else StateWriter(file, self._encoded)
        self._outcomes: dict[str, events.OrderOutcome] = {}

    def load(self) -> None:
        """Loads the file. Blocks; OSError from the disk."""
        content = None if self._file is None else self._file.load()
        if content is None:
            return
        try:
            self._outcomes = {
                name: json_format.ParseDict(outcome, events.OrderOutcome(), ignore_unknown_fields=True)
                for name, outcome in orjson.loads(content).items()
            }
        except (ValueError, AttributeError, json_format.ParseError) as error:
            assert self._file is not None
            self._file.set_aside(f"not the outcomes of orders ({error!r})")

    def get(self, order: str) -> events.OrderOutcome | None:
        return self._outcomes.get(order)

    async def remember(self, order: str, outcome: events.OrderOutcome) -> None:
        """Returns when the outcome is on disk, or when a failure is logged."""
        self._outcomes[order] = outcome
        while len(self._outcomes) > KEPT:
            self._outcomes.pop(next(iter(self._outcomes)))
        if self._writer is not None:
            await self._writer.written()

    def _encoded(self) -> bytes:
        return orjson.dumps({name: json_format.MessageToDict(each) for name, each in self._outcomes.items()})
