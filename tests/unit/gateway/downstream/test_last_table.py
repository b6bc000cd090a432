"""The table on disk, as a gateway finds it that starts."""

import json
from pathlib import Path

import pytest
from google.protobuf import json_format

from mesh.routing import ClientMatch, ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from mesh.routing.codec import table_to_proto
from mesh.routing.table_bytes import TableBytes
from mesh.rpc import routing
from services.gateway.downstream import last_table


def test_a_table_that_a_newer_release_has_kept_is_not_read_by_half(tmp_path: Path) -> None:
    rule = ForwardingRule("r1", ExactName("orders", client=ClientMatch(client_id="shop")), "c1")
    table = RoutingTable(1, [UpstreamCluster("c1", ("c1:9092",), 1)], [RuleVersion(rule, 1.0, 1)])
    last_table.save(tmp_path, table)
    assert last_table.load(tmp_path) == table

    (tmp_path / last_table.FILE_NAME).write_bytes(table_to_proto(table).SerializeToString() + b"\xfa\x7f\x01x")
    with pytest.raises(last_table.UnusableTableError, match="is not known here"):
        last_table.load(tmp_path)
    (tmp_path / last_table.FILE_NAME).unlink()

    message = json_format.MessageToDict(table_to_proto(table), preserving_proto_field_name=True)
    message["rule_versions"][0]["rule"]["match"]["weekdays_only"] = True
    (tmp_path / last_table.JSON_NAME).write_text(json.dumps(message), encoding="utf-8")
    with pytest.raises(last_table.UnusableTableError, match="weekdays_only"):
        last_table.load(tmp_path)


def as_json(folder: Path, table: RoutingTable) -> None:
    """A table as an earlier release has kept it, or an operator has written it."""
    (folder / last_table.JSON_NAME).write_text(json_format.MessageToJson(table_to_proto(table)), encoding="utf-8")


@pytest.mark.parametrize("revision", [300, 1, 2**40])
def test_a_table_of_an_earlier_release_counts_until_a_later_one_is_kept(tmp_path: Path, revision: int) -> None:
    clusters = [UpstreamCluster("c1", ("c1:9092",), 1)]
    as_json(tmp_path, RoutingTable(revision, clusters))
    keep(tmp_path, RoutingTable(revision - 1, clusters))
    assert last_table.load(tmp_path) == RoutingTable(revision, clusters)
    keep(tmp_path, RoutingTable(revision + 1, clusters))
    assert last_table.load(tmp_path) == RoutingTable(revision + 1, clusters)
    assert not (tmp_path / last_table.JSON_NAME).exists()
    as_json(tmp_path, RoutingTable(revision + 2, clusters))  # the earlier release has run again
    assert last_table.load(tmp_path) == RoutingTable(revision + 2, clusters)


def keep(folder: Path, table: RoutingTable) -> None:
    last_table.save_unless_older(folder, table.revision, TableBytes().pieces(table))


def test_the_youngest_table_stays_whichever_worker_writes_last(tmp_path: Path) -> None:
    clusters = [UpstreamCluster("c1", ("c1:9092",), 1)]
    for revision in (1, 3, 2, 3):
        keep(tmp_path, RoutingTable(revision, clusters))
    kept = last_table.load(tmp_path)
    assert kept is not None
    assert kept.revision == 3


def test_a_table_that_says_no_revision_makes_way(tmp_path: Path) -> None:
    (tmp_path / last_table.JSON_NAME).write_text("{}")
    keep(tmp_path, RoutingTable(0))
    keep(tmp_path, RoutingTable(7))
    kept = last_table.load(tmp_path)
    assert kept is not None
    assert kept.revision == 7


def test_a_worker_that_starts_while_another_one_forgets_the_held_table_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_table.save_held(tmp_path, 2, [routing.RoutingTable(revision=2).SerializeToString()])
    read = Path.read_bytes

    def forgotten_before(path: Path) -> bytes:
        last_table.forget_held(tmp_path, 2)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", forgotten_before)
    assert last_table.load_held(tmp_path) is None
