"""A page of clusters, for lists of things that a cluster has one of at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mesh.rpc import admin
from services.console.asking import PAGE_SIZE, Ask
from services.console.outcomes import CallError

T = TypeVar("T")


async def of_clusters(ask: Ask, get: Callable[[Ask, str], Awaitable[T]]) -> tuple[list[T], str]:
    """The things of the clusters on this page, and the address of the next page. `get`: by the cluster's name."""
    request = admin.ListClustersRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.clusters.ListClusters, request)
    found = await asyncio.gather(*(_known(ask, get, each.spec.cluster_name) for each in answer.clusters))
    return [each for each in found if each is not None], ask.more(answer.next_page_token)


async def _known(ask: Ask, get: Callable[[Ask, str], Awaitable[T]], cluster: str) -> T | None:
    try:
        return await get(ask, cluster)
    except CallError as failure:
        if failure.code != "NOT_FOUND":
            raise
        return None
