"""The schemas that this sidecar knows, and the look-up of further schemas.

The answers for an id, a version, or a registered text never change, and are kept as long as there is room. The latest
version is asked for again after a while. A schema is complete only with all schemas that it refers to, so these are
read along with it, bounded in number and in time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from mesh.schemas.schema import (
    RegisteredSchema,
    RegistryUnavailableError,
    SchemaError,
    UnknownSchemaError,
)
from services.sidecar.schemas.cache import Outcome, SingleFlightCache
from services.sidecar.schemas.questions import ByGuid, ById, ByText, ByVersion, Latest, Question
from services.sidecar.schemas.registry import Answer, SchemaRegistry
from services.sidecar.telemetry import metrics

FAILURE_SECONDS = 1.0
"""The time for which a missing schema counts as missing: short, because somebody may be registering the schema."""
MOST_REFERENCES = 100
"""The number of schemas that one schema may refer to, at any depth."""


@dataclass(frozen=True, slots=True)
class KeepingLimits:
    """Bounds of the cache, in number and time."""

    schemas: int = 1_000
    latest_seconds: float = 300.0
    look_up_seconds: float = 10.0
    """The longest look-up of one schema with all its references; schemas read by then are kept for the next try."""


class KnownSchemas:
    """The known schemas; all threads that write or read records with schemas ask this object."""

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
        """The answer, if the cache has it. Never waits."""
        return self._cache.known(question)

    def find(self, question: Question) -> RegisteredSchema:
        """The answer, from the registry if need be. The call waits, within bounds, so never call it on the event loop.

        SchemaError (UnknownSchemaError) when there is no such schema; RegistryUnavailableError when the registry does
        not answer now.
        """
        try:
            return self._find(question, _Reading([question], self._clock() + self._limits.look_up_seconds))
        except TimeoutError:
            raise RegistryUnavailableError(f"the schema registry takes too long; needed is {question}") from None

    def forget(self) -> None:
        """Drops all schemas; each is asked for again."""
        self._cache.clear()

    def close(self) -> None:
        """The registry is not asked any more."""
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
        """The registered schema of a text; the text is registered if the subject does not have it yet."""
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
        """The one object of an id, for every way of finding the schema."""
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
    """The reading of one schema with all that it refers to; bounds the depth, the number and the time."""

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
