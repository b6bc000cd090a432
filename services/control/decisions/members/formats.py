"""Which members read only older formats of routing tables."""

from __future__ import annotations

from collections.abc import Iterable

from mesh.rpc import admin

KINDS = {admin.MEMBER_KIND_ROUTER: "router", admin.MEMBER_KIND_GATEWAY: "gateway"}


def too_old(members: Iterable[admin.Member], table_format: int) -> list[tuple[str, str, str]]:
    """The kind, the name and the version of each connected router and gateway that does not read the format."""
    return sorted(
        (KINDS[each.kind], each.name.removeprefix("members/"), each.version)
        for each in members
        if each.kind in KINDS and each.table_format < table_format and not each.left_behind
    )
