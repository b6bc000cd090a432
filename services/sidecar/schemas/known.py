"""The schemas that this sidecar knows, and how it comes to know others.

An id, a version, a text once registered: their answers never change, and are kept as long as there is room. Latest
versions are asked for again after a while. A schema is complete only with all that it refers to, so that is read along
with it, bounded in number and in time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from services.sidecar import metrics
from services.sidecar.schemas.cache import Outcome, SingleFlightCache
from services.sidecar.schemas.questions import ByGuid, ById, ByText, ByVersion, Latest, Question
from services.sidecar.schemas.registry import Answer, SchemaRegistry
from services.sidecar.schemas.schema import (
    RegisteredSchema,
    RegistryUnavailableError,
    SchemaError,
    UnknownSchemaError,
)

FAILURE_SECONDS = 1.0
"""How long a schema that there is not stays unknown: short, as somebody may be registering it."""
MOST_REFERENCES = 100
"""Schemas that one schema may take in, at any depth."""


@dataclass(frozen=True, slots=True)
class KeepingLimits:
    """Bounds of what is kept, and for how long."""

    schemas: int = 1_000
    latest_seconds: float = 300.0
    look_up_seconds: float = 10.0
    """What one schema with all its references may take; what was read by then is kept for the next try."""


class KnownSchemas:
    """Asked by all threads that write or read records with schemas."""

    def __init__(
        self,
        registry: SchemaRegistry,
        limits: KeepingLimits,
        *,
        may_register: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._may_register = may_register
        self._clock = clock
        self._cache: SingleFlightCache[Question, RegisteredSchema] = SingleFlightCache(
            limits.schemas,
            failure_seconds=FAILURE_SECONDS,
            patience_seconds=2 * limits.look_up_seconds,
            passing=(RegistryUnavailableError,),
            on_outcome=_count,
            clock=clock,
        )

    def known(self, question: Question) -> RegisteredSchema | None:
        """The answer, if nobody has to be asked for it. Never waits."""
        return self._cache.known(question)

    def find(self, question: Question) -> RegisteredSchema:
        """The answer, from the registry if need be: waits for it, within bounds, so never call it on the event loop.

        SchemaError (UnknownSchemaError) says that there is none; RegistryUnavailableError, that nobody can say now.
        """
        try:
            return self._find(question, _Reading([question], self._clock() + self._limits.look_up_seconds))
        except TimeoutError:
            raise RegistryUnavailableError(f"the schema registry takes too long; needed is {question}") from None

    def forget(self) -> None:
        """All is asked for again."""
        self._cache.clear()

    def close(self) -> None:
        """Nobody is asked any more."""
        self._registry.close()

    def _find(self, question: Question, reading: "_Reading") -> RegisteredSchema:
        seconds = self._limits.latest_seconds if isinstance(question, Latest) else float("inf")
        return self._cache.get(question, lambda: self._look_up(question, reading), seconds)

    def _look_up(self, question: Question, reading: "_Reading") -> RegisteredSchema:
        match question:
            case ById(schema_id):
                return self._complete(self._registry.by_id(schema_id), reading)
            case ByGuid(guid):
                return self._complete(self._registry.by_guid(guid), reading)
            case ByVersion(subject, version):
                return self._interned(self._complete(self._registry.by_version(subject, version), reading))
            case Latest(subject):
                return self._interned(self._complete(self._registry.latest(subject), reading))
            case ByText():
                return self._interned(self._complete(self._registered(question), reading))

    def _registered(self, given: ByText) -> Answer:
        """A text as the registry knows it; where it does not, it is told."""
        what = (given.subject, given.kind, given.text, given.references)
        try:
            schema_id = self._registry.look_up(*what)
        except UnknownSchemaError as error:
            if not self._may_register:
                raise UnknownSchemaError(f"{error}, and this sidecar may not register it") from None
            schema_id = self._registry.register(*what)
            self._cache.forget(Latest(given.subject))
        return Answer(schema_id, given.kind, given.text, given.references, subject=given.subject)

    def _interned(self, schema: RegisteredSchema) -> RegisteredSchema:
        """One object for one id, however it was found."""
        return self._cache.keep(ById(schema.id), schema)

    def _complete(self, answer: Answer, reading: "_Reading") -> RegisteredSchema:
        references: dict[str, RegisteredSchema] = {}
        for reference in answer.references:
            question = ByVersion(reference.subject, reference.version)
            referred = self._find(question, reading.entered(question, self._clock()))
            for name, schema in (*referred.references.items(), (reference.name, referred)):
                if references.setdefault(name, schema).text != schema.text:
                    raise SchemaError(f"it refers to two different schemas by the name {name}")
            if len(references) > MOST_REFERENCES:
                raise SchemaError(f"it refers to more than {MOST_REFERENCES} others")
        return RegisteredSchema(
            answer.id, answer.kind, answer.text, references, answer.guid, answer.subject, answer.version
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    """One schema being read with all that it refers to; ends what would not end by itself."""

    path: list[Question]
    not_after: float

    def entered(self, question: Question, now: float) -> "_Reading":
        if now > self.not_after:
            raise RegistryUnavailableError(f"the schema registry takes too long; needed is {question}")
        if question in self.path:
            raise SchemaError(f"schemas refer to each other in a circle: {question}")
        return _Reading([*self.path, question], self.not_after)


_BY = {ById: "id", ByGuid: "guid", ByVersion: "version", Latest: "latest", ByText: "text"}


def _count(question: Question, outcome: Outcome) -> None:
    metrics.schema_lookups.labels(_BY[type(question)], outcome.value).inc()
