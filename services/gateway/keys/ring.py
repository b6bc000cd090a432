"""The data keys and schemas that a gateway keeps for a while, in front of its service of keys and its registry.

Theory of operation
1. A data key is kept for `kept_s` after the service has given it. Then the service is asked again. So a key that was
   destroyed takes effect within this time, and a service that is away is not noticed before.
2. To write, the gateway makes a data key of its own for each key id. It makes another one after half of the time, which
   is wrapped by the newest version of the key then. While the service is away, the last one serves until its time is
   over. A key that is gone takes effect at once.
3. A schema that a value names never changes, so it counts while the registry is away. So does the latest schema of a
   subject; after `LATEST_S` the gateway asks for it again, and nobody waits for the answer.
4. Each question is asked once, however many requests wait for it. Requests wait for `WAIT_S` at most. A failure is
   remembered for a moment, so a service that is away, or a flood of strange records, does not meet a flood of
   questions.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

import structlog

from mesh.protection.keys import DataKey, KeyGoneError, KeysAwayError, KeyService, NoKey, Wrapped
from mesh.schemas.registry import Registry
from mesh.schemas.schema import RegisteredSchema, RegistryUnavailableError, SchemaError
from services.gateway.keys import metrics
from services.gateway.requests.bounded_cache import BoundedCache
from services.gateway.requests.data_keys import Found, LatestOf, SchemaOf, Wanted

log = structlog.get_logger(__name__)

WAIT_S: Final = 5.0
FAILURE_S: Final = 2.0
"""So long the service is not asked again for a key that it did not give."""
DATA_KEYS_KEPT: Final = 10_000
"""About 5 MB."""
REGISTERED_KEPT: Final = 10_000
SCHEMAS_KEPT: Final = 1_000
"""Schemas of values in Avro; few are longer than 100 kB."""
LATEST_S: Final = 60.0
AT_ONCE: Final = 16
"""Questions to the service at a time; further ones wait."""
MOST_WAITING: Final = 1_000

Question = str | Wrapped | bytes | SchemaOf | LatestOf
"""The id of a key, for a data key to write by; the data key of a record; the prefix that names a schema.

Or a question to the registry: whether it has a schema, or the latest one of a subject.
"""
_CALLS: Final = {str: "make", Wrapped: "unwrap", bytes: "schema", SchemaOf: "registered", LatestOf: "latest"}
T = TypeVar("T")


class _Writing(NamedTuple):
    key: DataKey
    made: float


class _Latest(NamedTuple):
    schema: RegisteredSchema
    asked: float


class KeyRing:
    """See above. An instance is the `DataKeys` of a gateway."""

    def __init__(
        self,
        service: KeyService | None,
        kept_s: float,
        registry: Registry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._registry = registry
        self._kept_s = kept_s
        self._clock = clock
        self._writing: dict[str, _Writing] = {}
        """By key id; rules name 1,000 at most."""
        self._reading: BoundedCache[Wrapped, bytes] = BoundedCache(DATA_KEYS_KEPT, kept_s)
        self._schemas: BoundedCache[bytes, RegisteredSchema] = BoundedCache(SCHEMAS_KEPT, math.inf)
        self._latest: BoundedCache[LatestOf, _Latest] = BoundedCache(SCHEMAS_KEPT, math.inf)
        self._registered: BoundedCache[SchemaOf, bool] = BoundedCache(REGISTERED_KEPT, math.inf)
        """Schemas that the registry has: an id never changes its schema, so they count while the registry is away."""
        self._failed: BoundedCache[Question, NoKey] = BoundedCache(DATA_KEYS_KEPT, FAILURE_S)
        self._asking: dict[Question, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting: set[asyncio.Task[None]] = set()
        metrics.data_keys.set_function(lambda: len(self._reading) + len(self._writing))

    def find(self, wanted: Wanted, done: Callable[[Found], None]) -> None:
        now = self._clock()
        missing: list[Question] = [key_id for key_id in wanted.writing if self._to_write(key_id, now) is None]
        missing += [name for name in wanted.reading if self._to_read(name, now) is None]
        missing += [prefix for prefix in wanted.schemas if self._schema(prefix, now) is None]
        missing += [each for each in wanted.registered if self._is_registered(each, now) is None]
        missing += [each for each in wanted.latest if self._latest_schema(each, now) is None]
        self._ask_again(wanted.latest, now)
        if not missing:
            self._renew(wanted.writing, now)
            done(self._found(wanted))
            return
        task = asyncio.get_running_loop().create_task(self._ask(missing, wanted, done), name="data keys")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def close(self) -> None:
        tasks = [*self._waiting, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._service is not None:
            await self._service.close()

    # --- what is there -------------------------------------------------------------------------------------------

    def _to_write(self, key_id: str, now: float) -> DataKey | NoKey | None:
        failed = self._failed.get(key_id, now)
        if failed is not None and failed.is_gone:
            return failed
        found = self._writing.get(key_id)
        if found is not None and now - found.made <= self._kept_s:
            return found.key
        return failed

    def _to_read(self, name: Wrapped, now: float) -> bytes | NoKey | None:
        return self._reading.get(name, now) or self._failed.get(name, now)

    def _schema(self, prefix: bytes, now: float) -> RegisteredSchema | NoKey | None:
        return self._schemas.get(prefix, now) or self._failed.get(prefix, now)

    def _is_registered(self, schema: SchemaOf, now: float) -> bool | NoKey | None:
        return self._registered.get(schema, now) or self._failed.get(schema, now)

    def _latest_schema(self, question: LatestOf, now: float) -> RegisteredSchema | NoKey | None:
        found = self._latest.get(question, now)
        return self._failed.get(question, now) if found is None else found.schema

    def _found(self, wanted: Wanted) -> Found:
        now = self._clock()
        late = NoKey(f"the service of keys has not answered within {WAIT_S:g} s", is_gone=False)
        writing = {key_id: self._to_write(key_id, now) or late for key_id in wanted.writing}
        reading = {name: self._to_read(name, now) or late for name in wanted.reading}
        schemas = {prefix: self._schema(prefix, now) or late for prefix in wanted.schemas}
        told = {each: self._is_registered(each, now) or late for each in wanted.registered}
        registered = {each: why if isinstance(why, NoKey) else None for each, why in told.items()}
        latest = {each: self._latest_schema(each, now) or late for each in wanted.latest}
        return Found(writing, reading, schemas, registered, latest)

    # --- questions -----------------------------------------------------------------------------------------------

    async def _ask(self, missing: Iterable[Question], wanted: Wanted, done: Callable[[Found], None]) -> None:
        tasks = [task for each in missing if (task := self._question(each)) is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=WAIT_S)
        done(self._found(wanted))

    def _renew(self, key_ids: Iterable[str], now: float) -> None:
        """Asks for new data keys in the place of those that have lived for half of their time; nobody waits for it."""
        for key_id in key_ids:
            found = self._writing.get(key_id)
            if found is not None and now - found.made > self._kept_s / 2 and self._failed.get(key_id, now) is None:
                self._question(key_id)

    def _ask_again(self, questions: Iterable[LatestOf], now: float) -> None:
        """Asks for schemas that may be the latest no more; nobody waits for it."""
        for each in questions:
            found = self._latest.get(each, now)
            if found is not None and now - found.asked > LATEST_S and self._failed.get(each, now) is None:
                self._question(each)

    def _question(self, question: Question) -> asyncio.Task[None] | None:
        """The task that asks it; None if there is no room."""
        task = self._asking.get(question)
        if task is None and len(self._asking) < MOST_WAITING:
            task = asyncio.get_running_loop().create_task(self._answer(question), name="key service")
            self._asking[question] = task
            task.add_done_callback(lambda _: self._asking.pop(question, None))
        return task

    async def _answer(self, question: Question) -> None:
        call = _CALLS[type(question)]
        async with self._room:
            began = self._clock()
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._take(question, began)
            except (KeyGoneError, SchemaError) as error:
                self._fail(question, NoKey(str(error), is_gone=True), call)
            except (KeysAwayError, RegistryUnavailableError, TimeoutError) as error:
                reason = str(error) or f"the service of keys has not answered within {WAIT_S:g} s"
                self._fail(question, NoKey(reason, is_gone=False), call)
            except Exception as error:  # noqa: BLE001  # of a plug-in: a fault there must not end the requests here
                reason = f"the service of keys has failed: {type(error).__name__}"
                self._fail(question, NoKey(reason, is_gone=False), call)
            finally:
                metrics.key_service_seconds.labels(call).observe(self._clock() - began)

    async def _take(self, question: Question, began: float) -> None:
        if isinstance(question, bytes | SchemaOf | LatestOf):
            await self._ask_registry(question, began)
        elif self._service is None:
            raise KeysAwayError("this gateway has no service of keys (KEY_SERVICE)")
        elif isinstance(question, str):
            key = await self._service.make(question)
            self._writing[question] = _Writing(key, began)
            self._reading.put(key.name, key.secret, began)
        else:
            self._reading.put(question, await self._service.unwrap(question), began)

    async def _ask_registry(self, question: bytes | SchemaOf | LatestOf, began: float) -> None:
        registry = self._registry
        if registry is None:
            raise RegistryUnavailableError("this gateway has no schema registry (SCHEMA_REGISTRY_URL)")
        if isinstance(question, SchemaOf):
            await asyncio.to_thread(registry.check_registered, *question)
            self._registered.put(question, True, began)
        elif isinstance(question, LatestOf):
            self._latest.put(question, _Latest(await asyncio.to_thread(registry.latest, *question), began), began)
        else:
            self._schemas.put(question, await asyncio.to_thread(registry.schema, question), began)

    def _fail(self, question: Question, failure: NoKey, call: str) -> None:
        if isinstance(question, str) and failure.is_gone:
            self._writing.pop(question, None)
        self._failed.put(question, failure, self._clock())
        metrics.key_service_failures.labels(call, "gone" if failure.is_gone else "away").inc()
        if isinstance(question, bytes | SchemaOf | LatestOf):
            asked = question if isinstance(question, bytes) else question[0]
            shown = asked.hex() if isinstance(asked, bytes) else asked
            log.warning("the schema registry gave no schema", asked=shown, reason=failure.reason)
        else:
            key_id = question if isinstance(question, str) else question.key_id
            log.warning("the service of keys gave no key", key_id=key_id, reason=failure.reason, gone=failure.is_gone)
