"""A stitched log for tests: `apples` was on c1 up to offset 100, and is on c2 from its offset 10 on, or back on c1.

Clients see offset 100 where c2 has offset 10: the shift of the part is 90.
"""

from mesh.stitches import LogPart, Policy, StitchedLog
from services.gateway.wire.messages.fetch import AbortedTransaction, FetchableTopicResponse, PartitionData
from tests.unit.gateway.requests.playbook import World
from tests.unit.gateway.wire.records import batch

OLD = LogPart("c1", "apples", 1, (0,), (0,))
NEW = LogPart("c2", "apples", 1, (100,), (90,))
BACK = LogPart("c1", "apples", 2, (150,), (45,))
"""c1 had five records more by then than the old part, which nobody of the mesh has written."""


def stitched_world(*, back: bool = False) -> World:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.memory.stitches = Policy([StitchedLog("apples", (OLD, NEW, BACK))], 1)
    world.move("apples", "c2")
    if back:
        world.move("apples", "c1")
    return world


def records_at(*offsets: int) -> bytes:
    """Batches of one record each."""
    return b"".join(bytes(batch(str(offset).encode(), base_offset=offset)) for offset in offsets)


def read(
    records: bytes = b"",
    *,
    error: int = 0,
    high: int = 50,
    stable: int | None = None,
    start: int = 0,
    aborted: tuple[tuple[int, int], ...] = (),
) -> FetchableTopicResponse:
    """A broker's answer about `apples`."""
    part = PartitionData(0, error, high, high if stable is None else stable, start, records=records)
    part.aborted_transactions = [AbortedTransaction(*each) for each in aborted]
    return FetchableTopicResponse("apples", partitions=[part])
