"""One /metrics for all workers: each is asked at the time of the scrape, and its series get the label `worker`."""

import pickle
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from services.gateway.workers.words import LENGTH

LABEL = "worker"
ANSWER_S = 4.0
"""Time for all workers together. A worker that does not answer is left out, like a process that misses a scrape."""

Ask = Callable[[], socket.socket | None]
"""Asks one worker; returns the socket of its answer, None if the worker can't be asked."""


class WorkersCollector(Collector):
    """Read by the management thread."""

    def __init__(self, own: CollectorRegistry, workers: Callable[[], Mapping[int, Ask]]) -> None:
        """`own` is the registry of the supervisor."""
        self._own = own
        self._workers = workers

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        asked = {worker: ask() for worker, ask in self._workers().items()}  # they collect side by side
        found = {family.name: family for family in self._own.collect()}
        give_up_at = time.monotonic() + ANSWER_S
        for worker, answer in asked.items():
            if answer is not None:
                with answer:
                    for family in answered(answer, give_up_at):
                        add(found, family, str(worker))
        yield from found.values()


def answered(source: socket.socket, give_up_at: float) -> list[Metric]:
    """All of a worker's families; none if the worker does not send all of them in time."""
    families: list[Metric] = []
    try:
        with source.makefile("rb") as stream:
            while True:
                source.settimeout(max(0.01, give_up_at - time.monotonic()))
                (length,) = LENGTH.unpack(stream.read(LENGTH.size))
                if not length:
                    return families
                families.append(pickle.loads(stream.read(length)))
    except (OSError, struct.error, pickle.UnpicklingError, EOFError):
        return []


def add(found: dict[str, Metric], family: Metric, worker: str) -> None:
    """Add a worker's family to those of the others."""
    for index, sample in enumerate(family.samples):
        family.samples[index] = sample._replace(labels={**sample.labels, LABEL: worker})
    known = found.setdefault(family.name, family)
    if known is not family:
        known.samples.extend(family.samples)
