"""Native histograms of Prometheus: exponential buckets, as many as there are observations for. No I/O.

Theory of operation
1. Bucket `i` of schema `s` ends at 2^(i * 2^-s) and includes its end. Schema 3 has 8 buckets for each power of two, so
   a quantile is wrong by 9 % at most. Observations up to `ZERO_S` are in a bucket of their own.
2. Only buckets with observations count. If they are more than `MOST_BUCKETS`, each two become one (the next lower
   schema). Counts only grow, so a process never returns to a higher schema.
Source: https://prometheus.io/docs/specs/native_histograms/
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from prometheus_client.samples import BucketSpan, NativeHistogram, Sample

SCHEMA: Final = 3
PER_OCTAVE: Final = 2**SCHEMA
"""Buckets of a factor of two."""
MOST_BUCKETS: Final = 160
"""The bound that OpenTelemetry has for the same buckets."""
ZERO_S: Final = 2.0**-20
"""About a microsecond. A power of two is a bound in each schema."""
LARGEST_GAP: Final = 2
"""So many empty buckets are written as such: a further span takes more bytes."""
_ZERO: Final = round(math.log2(ZERO_S)) * PER_OCTAVE
_BOUNDS: Final = tuple(2.0 ** (place / PER_OCTAVE - 1) for place in range(PER_OCTAVE))


def bucket_of(value: float) -> int:
    """The bucket of an observation, in `SCHEMA`."""
    if value <= ZERO_S:
        return _ZERO
    fraction, exponent = math.frexp(value)
    return bisect_left(_BOUNDS, fraction) + (exponent - 1) * PER_OCTAVE


def native_sample(name: str, labels: Mapping[str, str], counts: Mapping[int, int], total: float) -> Sample:
    """The sample of a native histogram: `counts` by bucket of `SCHEMA`, and the sum of all observations.

    Formats without native histograms leave it out. It has no value of its own.
    """
    zeros, wide, schema = 0, dict[int, int](), SCHEMA
    for bucket, count in counts.items():
        if bucket <= _ZERO:
            zeros += count
        elif count:
            wide[bucket] = count
    every = zeros + sum(wide.values())
    while len(wide) > MOST_BUCKETS:
        schema, narrow, wide = schema - 1, wide, {}
        for bucket, count in narrow.items():
            wide[-(-bucket // 2)] = wide.get(-(-bucket // 2), 0) + count
    spans, deltas = _spans(wide)
    native = NativeHistogram(every, total, schema, ZERO_S, zeros, pos_spans=spans, pos_deltas=deltas)
    return Sample(name, dict(labels), math.nan, native_histogram=native)


def _spans(counts: Mapping[int, int]) -> tuple[list[BucketSpan], list[int]]:
    """Runs of buckets, and how each count differs from the count before."""
    spans: list[BucketSpan] = []
    deltas: list[int] = []
    end = before = 0
    for bucket in sorted(counts):
        if spans and bucket - end <= LARGEST_GAP:
            spans[-1] = BucketSpan(spans[-1].offset, spans[-1].length + bucket - end + 1)
            filled = bucket - end
        else:
            spans.append(BucketSpan(bucket - end, 1))
            filled = 0
        for count in (*[0] * filled, counts[bucket]):
            deltas.append(count - before)
            before = count
        end = bucket + 1
    return spans, deltas
