"""Records of jobs on their way to the backend: shown in the reactive consumer's formats, delivered by its engine."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Protocol

from mesh.schemas.schema import RegistryUnavailableError
from services.sidecar.dead_letters.record import Origin, has_lost_its_value
from services.sidecar.delivering.batch import Batch, Deliverable, ReplyRecord, Settlement
from services.sidecar.delivering.record_shower import RecordShower
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.records import Outcome, Partition, RawRecord, Reason, Verdict


class Delivers(Protocol):
    """Has the backend process a batch, with all attempts that this takes."""

    async def deliver(self, batch: Batch) -> Settlement: ...


class ShownDelivery:
    """Decodes records from Kafka and delivers them; see `destinations.Deliver`."""

    def __init__(
        self, shower: RecordShower, deliverer: Delivers, paths: Callable[[Deliverable], str | None] = lambda _: ""
    ) -> None:
        """`paths`: the path of a record, if the job names none; empty for the usual path."""
        self._shower = shower
        self._deliverer = deliverer
        self._paths = paths

    async def __call__(self, records: Sequence[RawRecord], path: str, occasion: str = "") -> Settlement:
        """One verdict for each record. A record that does not fit its format never reaches the backend.

        Fault if the schema registry cannot be asked.
        """
        partition = Partition(records[0].topic, records[0].partition)
        whole = [one for one in records if not has_lost_its_value(one)]
        try:
            shown = await self._shower.shown_aside(whole)
        except RegistryUnavailableError as error:
            raise Fault(FaultKind.SCHEMA_REGISTRY_UNAVAILABLE, f"{partition} cannot be read now: {error}") from None
        verdicts = [one for one in shown if isinstance(one, Verdict)]
        verdicts += [_without_value(one) for one in records if has_lost_its_value(one)]
        replies: list[ReplyRecord] = []
        readable = (one for one in shown if isinstance(one, Deliverable))
        for part_path, part in groupby(readable, key=lambda one: path or self._paths(one) or ""):
            settlement = await self._deliverer.deliver(Batch(partition, tuple(part), part_path, occasion))
            verdicts += settlement.verdicts
            replies += settlement.replies
        return Settlement(partition, tuple(sorted(verdicts, key=lambda one: one.record.offset)), replies)


def _without_value(record: RawRecord) -> Verdict:
    origin = Origin.of(record.headers)
    why = (
        f"its value of {origin.value_bytes} bytes was too large for a dead letter; read it at {origin.topic}-"
        f"{origin.partition} offset {origin.offset}, for as long as that topic keeps it"
    )
    return Verdict(record, Outcome.DEAD_LETTER, Reason.OVERSIZE, stacktrace=why, attempts=0)
