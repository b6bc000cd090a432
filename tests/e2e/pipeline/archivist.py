"""A pipeline that archives one topic through a mesh, as its supervisor runs it, and what the archive has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.meshes import Mesh
from tests.fixtures.record_rules import Side
from tests.integration.pipeline.toolchain import QUICK_JVM
from tests.soak.pipeline.serves import Serve

NAME = "archivist"
HOUR_S = 3600
"""The archive looks once by itself."""
PARTITIONS = 3

Log = dict[tuple[int, int], bytes | None]
"""Value by partition and offset."""


@contextmanager
def archiving(mesh: Mesh, folder: Path, topic: str, every_s: float = HOUR_S) -> Iterator[Serve]:
    """A pipeline that archives one topic through the gateway; stopped in order at the end."""
    serve = Serve(
        folder.with_name("serve.log"),
        NAME=NAME,
        CONTROL_ADDRESSES=mesh.control,
        RPC_TLS_FOLDER=mesh.certificate("pipeline", NAME),
        BOOTSTRAP_SERVERS=mesh.gateway,
        JOBS="archive",
        ARCHIVE_FOLDER=str(folder),
        ARCHIVE_TOPICS=topic,
        ARCHIVE_INTERVAL_S=str(every_s),
        DRIVER_JAVA_OPTIONS=QUICK_JVM,
        STATE_DIR=str(folder.with_name("state")),
    )
    try:
        yield serve
        serve.stop()
    finally:
        serve.end()


def log_of(side: Side, topic: str) -> Log:
    return {(each.partition, each.offset): each.value for each in side.read(topic)}


def archived(folder: Path, generation: int) -> Log:
    """The archived records of one generation; each offset once."""
    from tests.integration.pipeline.archives import read_back

    return {(place.partition, place.offset): each.value for place, each in read_back(folder, generation).items()}
