"""The table of handlers: every API that this gateway serves is a row in `rows/` and a module beside this one.

`python -m services.gateway.requests.table` writes the table into `docs/reference/gateway-apis.md`.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from services.gateway.requests.handler import Handler, Reach
from services.gateway.requests.knowledge import ClusterKnowledge, VersionRange
from services.gateway.requests.left_out import LEFT_OUT
from services.gateway.requests.rows import clusters, groups, mesh, records, topics, transactions
from services.gateway.wire.apis import api_name

HANDLERS: Mapping[int, Handler] = {
    row.api_key: row for rows in (mesh, records, groups, transactions, topics, clusters) for row in rows.ROWS
}


def served_ranges(known_clusters: Iterable[ClusterKnowledge]) -> dict[int, VersionRange]:
    """API key -> versions to offer, by each row's reach.

    A cluster that has never been reached does not limit the versions.
    """
    known = [cluster.versions for cluster in known_clusters if cluster.versions]
    served: dict[int, VersionRange] = {}
    for handler in HANDLERS.values():
        offered = _offered(handler, [versions.get(handler.api_key) for versions in known])
        if offered is not None:
            served[handler.api_key] = handler.widened(offered)
    return served


def _offered(handler: Handler, spoken: Sequence[VersionRange | None]) -> VersionRange | None:
    """`spoken`: the versions of each known cluster, None for a cluster that lacks the API."""
    ranges = [each for each in spoken if each is not None]
    if not spoken or handler.reach is Reach.OWN:
        return handler.versions
    if not ranges or (handler.reach is Reach.ALL_CLUSTERS and len(ranges) < len(spoken)):
        return None
    if handler.reach is Reach.ONE_OWNER:
        hull = VersionRange(min(low for low, _ in ranges), max(high for _, high in ranges))
        return handler.versions.intersection(hull)
    common: VersionRange | None = handler.versions
    for each in ranges:
        common = common.intersection(each) if common else None
    return common


def markdown() -> str:
    """The table for the page."""
    head = ["key", "API", "versions", "offered", "goes to", "answers become one by"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [
        f"| {key} | {api_name(key)} | {_versions(row)} | {row.reach.value} | {row.split} | {row.merge or '-'} |"
        for key, row in sorted(HANDLERS.items())
    ]
    return "\n".join(lines)


def _versions(row: Handler) -> str:
    if row.older is None:
        return str(row.versions)
    low, high = row.older.versions
    return f"{row.widened(row.versions)} ({low if low == high else row.older.versions} translated)"


def left_out() -> str:
    """The APIs that the gateway leaves out on purpose, for the page."""
    apis: dict[str, list[str]] = {}
    for key, reason in sorted(LEFT_OUT.items()):
        apis.setdefault(reason, []).append(f"{api_name(key)} ({key})")
    return "\n".join(f"- {', '.join(names)}: {reason}." for reason, names in apis.items())


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "gateway-apis.md"


def with_table(text: str) -> str:
    """The page's text with an up-to-date table between its markers."""
    for name, content in (("api table", markdown()), ("left out", left_out())):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{content}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE} is up to date\n")
