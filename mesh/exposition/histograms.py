"""A histogram of prometheus_client that counts its observations in native buckets, too.

The gateway counts the times of its requests by plainer means (`services.gateway.counting`).
"""

from collections.abc import Iterable
from threading import Lock

import prometheus_client
from prometheus_client.samples import Sample

from mesh.exposition.native import bucket_of, native_sample


class Histogram(prometheus_client.Histogram):
    """Any thread may observe."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._native: dict[int, int] = {}
        self._native_lock = Lock()

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        super().observe(amount, exemplar)
        bucket = bucket_of(amount)
        with self._native_lock:
            self._native[bucket] = self._native.get(bucket, 0) + 1

    def _child_samples(self) -> Iterable[Sample]:
        yield from super()._child_samples()
        with self._native_lock:
            counts = dict(self._native)
        yield native_sample("", {}, counts, self._sum.get())
