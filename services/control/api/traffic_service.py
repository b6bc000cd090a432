"""TrafficService: amount, clients, topics and latency of traffic, and receipts, from tables that a pipeline fills."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from mesh.rpc import traffic, traffic_grpc
from services.control.api import pages
from services.control.domain.errors import InvalidField
from services.control.domain.traffic.queries import (
    LAST_DAY,
    LAST_HOUR,
    Piece,
    columns_of,
    freshness,
    growth,
    limit_of,
    measure_of,
    pieces,
    range_of,
    step_of,
)
from services.control.domain.traffic.receipts import incomplete, receipt_query
from services.control.store.receipts import Place, ReceiptTable
from services.control.store.traffic import TrafficTables


class TrafficService(traffic_grpc.TrafficServiceServicer):
    """See TrafficService in traffic.proto. From PostgreSQL alone: it needs neither the log nor the lead."""

    def __init__(self, tables: TrafficTables, receipts: ReceiptTable) -> None:
        self._tables = tables
        self._receipts = receipts

    async def TopTalkers(self, request: traffic.TopTalkersRequest, context: Any) -> traffic.TopTalkersResponse:
        by, measure, limit = columns_of(request.by), measure_of(request.measure), limit_of(request.limit)
        asked = range_of(request.filter, request, datetime.now(UTC), LAST_HOUR)
        kept = await self._tables.kept()
        found = await self._tables.top(asked, list(pieces(asked.start, asked.end, kept)), by, measure, limit)
        return traffic.TopTalkersResponse(
            talkers=[
                traffic.Talker(who=traffic.TrafficFilter(**dict(zip(by, names, strict=True))), figures=figures)
                for names, figures in found.talkers
            ],
            total=found.total,
            freshness=freshness(*await self._tables.told()),
        )

    async def QueryTraffic(self, request: traffic.QueryTrafficRequest, context: Any) -> traffic.QueryTrafficResponse:
        asked = range_of(request.filter, request, datetime.now(UTC), LAST_DAY)
        step = step_of(request, asked, await self._tables.kept())
        piece = Piece(step, step.floor(asked.start), step.ceil(asked.end))
        found = await self._tables.course(asked, piece)
        answer = traffic.QueryTrafficResponse(total=found.total, freshness=freshness(*await self._tables.told()))
        for time, figures in found.points:
            answer.points.add(figures=figures).start_time.FromDatetime(time)
        bytes_by_time = [(time, figures.bytes) for time, figures in found.points]
        grown = growth(bytes_by_time, piece.start, piece.end)
        if grown is not None:
            answer.growth = grown
        return answer

    async def ListReceipts(self, request: traffic.ListReceiptsRequest, context: Any) -> traffic.ListReceiptsResponse:
        size, listing = pages.page_size(request.page_size), pages.listing_of("receipts", request)
        after = pages.place_of(listing, request.page_token)
        found = await self._receipts.find(receipt_query(request), _place(after), size + 1)
        return traffic.ListReceiptsResponse(
            receipts=found.receipts[:size],
            next_page_token=pages.token(listing, json.dumps(found.places[size - 1]))
            if len(found.receipts) > size
            else "",
            freshness=freshness(*await self._tables.told()),
            incomplete=incomplete(await self._receipts.untold()),
        )


def _place(said: int | str | None) -> Place | None:
    if said is None:
        return None
    try:
        partition, earlier, principal, group, single = json.loads(str(said))
        return int(partition), bool(earlier), str(principal), str(group), str(single)
    except (ValueError, TypeError):
        raise InvalidField("page_token", "not a token of this list; take next_page_token of the page before") from None
