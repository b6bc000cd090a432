"""Every version of a rule that was in force, as a table: it answers questions about the past, however long the log is.

The routing table in memory can't answer such questions: of what is long past it keeps only the count. A version begins
with the change that made it, also if that change was held and counted a moment later. A change that was given up, or is
still held, has no version.
"""

from __future__ import annotations

from collections.abc import Iterator

from mesh.routing import RuleVersion
from mesh.routing.codec import rule_from_proto, rule_to_proto
from mesh.rpc import events
from services.control.domain.view import MeshView
from services.control.store import schema
from services.control.store.statements import Row, Statement, insert_rows


def statements(before: MeshView, after: MeshView) -> Iterator[Statement]:
    """The statements that bring the table from `before` to `after`: versions that have begun, and those that ended.

    The rules revision of `after` ended them.
    """
    if before.rules_revision == after.rules_revision:
        return
    mine, others = (view.state.effective.living_rules.ordered for view in (before, after))
    start, end = mine.alike(others)
    going = {name_of(version): version for version in mine.between(start, len(mine) - end)}
    coming = {name_of(version): version for version in others.between(start, len(others) - end)}
    if over := [name for name in going if name not in coming]:
        sql = b"update rule_versions set until_revision = %s where name = any(%s)"
        yield Statement(sql, (after.rules_revision, over), schema.rule_versions.name)
    yield from insert_rows(
        schema.rule_versions, [_row(version) for name, version in coming.items() if name not in going]
    )


class VersionRows:
    """The same rows from the changes alone, for a reader of the whole log: a comparison of all rules after each change
    would take too long with many rules.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Row] = {}
        self._living: dict[str, RuleVersion] = {}

    def change(self, event: events.Event) -> None:
        """A RuleSetChanged counts from here on. LookupError when it does not follow from those before."""
        revision = event.position
        for each in event.rule_set_changed.changes:
            match each.WhichOneof("kind"):
                case "created":
                    self._begin(RuleVersion(rule_from_proto(each.created), each.rank, revision))
                case "updated":
                    before = self._end(each.updated.rule_id, revision)
                    self._begin(RuleVersion(rule_from_proto(each.updated), before.rank, revision))
                case "moved":
                    self._begin(RuleVersion(self._end(each.moved, revision).rule, each.rank, revision))
                case "removed":
                    self._end(each.removed, revision)

    def _begin(self, version: RuleVersion) -> None:
        self._living[version.rule.rule_id] = version
        self.by_name[name_of(version)] = _row(version)

    def _end(self, rule_id: str, revision: int) -> RuleVersion:
        version = self._living.pop(rule_id)
        if version.from_revision == revision:  # it never counted
            del self.by_name[name_of(version)]
        else:
            self.by_name[name_of(version)]["until_revision"] = revision
        return version


def name_of(version: RuleVersion) -> str:
    return f"{version.rule.rule_id}@{version.from_revision}"


def _row(version: RuleVersion) -> Row:
    spec = rule_to_proto(version.rule)
    kind = spec.match.WhichOneof("kind") or ""
    value = getattr(spec.match, kind)
    return {
        "name": name_of(version),
        "rule_id": spec.rule_id,
        "from_revision": version.from_revision,
        "until_revision": None,
        "rank": version.rank,
        "match_kind": kind,
        "match": value if isinstance(value, str) else "",
        "spec": spec.SerializeToString(deterministic=True),
    }
