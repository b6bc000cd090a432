"""Transactions and the ids of producers."""

from services.gateway.requests.handler import Handler, Reach
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.transactions import (
    add_partitions,
    describe_transactions,
    end,
    init_producer_id,
    list_transactions,
    offsets,
    write_txn_markers,
)
from services.gateway.wire.apis import ApiKey

ROWS = (
    Handler(
        ApiKey.INIT_PRODUCER_ID,
        VersionRange(0, 5),
        init_producer_id.handle,
        split="answered by the gateway: it mints the id; transactional ids: coordinator on the id's home cluster",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        VersionRange(0, 3),
        add_partitions.handle,
        split="each topic's owner, which is registered at the transactional id's home; 4 and 5 are between brokers",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.ADD_OFFSETS_TO_TXN,
        VersionRange(0, 4),
        offsets.handle_add,
        split="the group's home, which is registered at the transactional id's home",
        merge="",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.END_TXN,
        VersionRange(0, 5),
        end.handle,
        split="the transactional id's home, which decides, and every cluster with a part",
        merge="home's word",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.TXN_OFFSET_COMMIT,
        VersionRange(0, 6),
        offsets.handle_commit,
        split="each topic's owner, or the group's home that keeps all; a member is checked at its group's home first",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.WRITE_TXN_MARKERS,
        VersionRange(0, 2),
        write_txn_markers.handle,
        split="leader of each partition on its topic's owner; for administrators who abort what hangs",
        merge="partition",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.DESCRIBE_TRANSACTIONS,
        VersionRange(0, 0),
        describe_transactions.handle,
        split="every cluster that has transactions",
        merge="transactional id: its home's word, with the partitions of all",
        reach=Reach.ONE_OWNER,
    ),
    Handler(
        ApiKey.LIST_TRANSACTIONS,
        VersionRange(0, 2),
        list_transactions.handle,
        split="every broker of every cluster",
        merge="transactional id, by its identity at home",
        reach=Reach.ONE_OWNER,
    ),
)
