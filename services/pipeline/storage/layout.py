"""The names in a folder of Parquet files that a stream of Spark fills: days, batches, the checkpoint. No I/O.

Readers of Parquet skip names that begin with an underscore.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from services.pipeline.kafka.position_json import parse
from services.pipeline.kafka.positions import Position

CHECKPOINT = "_checkpoint"
STAGE = "_staged"
PARQUET = ".parquet"


def batch_folder(day: str, batch: int) -> str:
    """The folder of the part of a batch that is from one day."""
    return f"day={day}/batch={batch}"


def last_batch(paths: Iterable[str]) -> int | None:
    """The last batch among files of the checkpoint, which have the numbers of batches as names; None for no batch."""
    names = (path.rpartition("/")[2] for path in paths)
    return max((int(name) for name in names if name.isdecimal()), default=None)


def position_of(offset_log: str) -> Position:
    """The position of the stream after a batch, from Spark's offset log: version, metadata, position of the source."""
    _version, _metadata, document = offset_log.split("\n", 2)
    return parse(json.loads(document))
