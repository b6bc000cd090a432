"""Records: the requests by which producers and consumers move them, and the questions about logs."""

from services.gateway.requests.handler import Handler, Older, Order, Reach
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.older import fetch as older_fetch
from services.gateway.requests.older import offsets as older_offsets
from services.gateway.requests.older import produce as older_produce
from services.gateway.requests.records import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from services.gateway.wire.apis import ApiKey

ROWS = (
    Handler(
        ApiKey.PRODUCE,
        VersionRange(3, 13),
        produce.handle,
        older=Older(VersionRange(0, 2), older_produce.handle),
        split="leader of each partition on its topic's owner; untouched when that is one",
        merge="partition, in the client's order",
        order=Order.PIPELINED,
        counts_itself=True,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.FETCH,
        VersionRange(4, 18),
        fetch.handle,
        older=Older(VersionRange(0, 3), older_fetch.handle),
        split="leader of each partition on its topic's owner, or a replica in the client's rack",
        merge="partition; by sessions on both sides; leaves when the minimum has come in or the wait is over",
        counts_itself=True,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.LIST_OFFSETS,
        VersionRange(1, 11),
        list_offsets.handle,
        older=Older(VersionRange(0, 0), older_offsets.handle_list_offsets),
        split="leader of each partition on its topic's owner",
        merge="partition",
    ),
    Handler(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        VersionRange(0, 4),
        offset_for_leader_epoch.handle,
        split="answered by the gateway: clients see no leader epochs",
        merge="",
        order=Order.AT_ONCE,
        reach=Reach.OWN,
    ),
    Handler(
        ApiKey.DELETE_RECORDS,
        VersionRange(0, 2),
        delete_records.handle,
        split="leader of each partition on its topic's owner",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_PRODUCERS,
        VersionRange(0, 0),
        describe_producers.handle,
        split="leader of each partition on its topic's owner",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
)
