"""What the cluster aggregate accepts, refuses and decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.routing import RoutingTable, UpstreamCluster
from mesh.rpc import routing
from services.control.domain.clusters.clusters import Clusters, Sighting, check_spec, expect_revision
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed, Unknown
from tests.unit.control.worlds import table


def spec(name: str = "c1", *addresses: str, **fields: object) -> routing.ClusterSpec:
    servers = addresses or (f"{name}:9092",)
    return routing.ClusterSpec(cluster_name=name, bootstrap_servers=servers, **fields)  # type: ignore[arg-type]


def clusters(*known: UpstreamCluster, rules: RoutingTable | None = None) -> Clusters:
    versions = rules.versions if rules else ()
    return Clusters(RoutingTable(7, known, versions), next_ordinal=len(known) + 1)


C1 = UpstreamCluster("c1", ("c1:9092",), 1, kafka_cluster_id="id-1")
C2 = UpstreamCluster("c2", ("c2:9092",), 2, kafka_cluster_id="id-2")


def test_a_new_cluster_gets_the_next_ordinal() -> None:
    event = clusters(C1).register(spec("c2"), Sighting("id-2"))
    assert event is not None
    assert (event.cluster.ordinal, event.cluster.kafka_cluster_id, event.cluster.home) == (2, "id-2", False)


def test_the_home_cluster_is_marked_once() -> None:
    first = clusters().register(spec("c1"), Sighting("id-1", home=True))
    second = clusters(replace(C1, home=True)).register(spec("c2"), Sighting("", home=True))
    assert first is not None
    assert second is not None
    assert first.cluster.home
    assert not second.cluster.home


def test_registering_the_same_again_changes_nothing() -> None:
    assert clusters(C1).register(spec("c1"), Sighting("id-1")) is None


def test_a_name_is_given_once() -> None:
    with pytest.raises(Exists, match="'c1' is registered with other settings"):
        clusters(C1).register(spec("c1", "elsewhere:9092"), Sighting("id-9"))


def test_a_kafka_cluster_has_one_name() -> None:
    with pytest.raises(Exists, match="id-1, which is registered as 'c1'"):
        clusters(C1).register(spec("other"), Sighting("id-1"))


def test_an_update_takes_the_fields_of_the_mask() -> None:
    merged = clusters(C1).merged("c1", spec("ignored", "new:9092", partition_count=6), ["bootstrap_servers"])
    assert (list(merged.bootstrap_servers), merged.partition_count, merged.cluster_name) == (["new:9092"], 0, "c1")


def test_an_update_without_a_mask_takes_all() -> None:
    merged = clusters(C1).merged("c1", spec("c1", "new:9092", producer_config={"acks": "1"}), [])
    assert (list(merged.bootstrap_servers), dict(merged.producer_config)) == (["new:9092"], {"acks": "1"})


def test_a_mask_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(InvalidField, match="'cluster_name' can't be updated"):
        clusters(C1).merged("c1", spec("c1"), ["cluster_name"])


def test_new_addresses_must_lead_to_the_same_kafka_cluster() -> None:
    with pytest.raises(NotAllowed, match="lead to id-9, which does not hold its records"):
        clusters(C1).update(spec("c1", "new:9092"), Sighting("id-9"))


def test_an_update_to_what_it_is_changes_nothing() -> None:
    assert clusters(C1).update(spec("c1"), Sighting("id-1")) is None
    assert clusters(C1).update(spec("c1"), Sighting("")) is None


def test_a_cluster_that_rules_point_to_stays() -> None:
    with pytest.raises(NotAllowed, match="target of rules: r1, r3"):
        clusters(C1, C2, rules=table("a->c1", "b->c2", "c->c1")).remove("c1")


def test_the_home_cluster_stays() -> None:
    with pytest.raises(NotAllowed, match=r"holds mesh\.events"):
        clusters(replace(C1, home=True)).remove("c1")


def test_removing_an_unknown_cluster_names_the_known_ones() -> None:
    with pytest.raises(Unknown, match=r"'c9' is not registered \(known: c1, c2\)"):
        clusters(C1, C2).remove("c9")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (spec("c 1", "c1:9092"), "spec.cluster_name"),
        (spec("", "c1:9092"), "spec.cluster_name"),
        (routing.ClusterSpec(cluster_name="c1"), "spec.bootstrap_servers"),
        (spec("c1", "c1:9092", "nonsense"), r"spec.bootstrap_servers\[1\]"),
        (spec("c1", partition_count=-1), "spec.partition_count"),
        (spec("c1", producer_config={"bootstrap.servers": "x:1"}), r"producer_config\[bootstrap.servers\]"),
        (spec("c1", consumer_config={"sasl.password": "hunter2"}), r"consumer_config\[sasl.password\]"),
    ],
)
def test_a_wrong_spec_is_refused_with_its_field(wrong: routing.ClusterSpec, field: str) -> None:
    with pytest.raises(InvalidField, match=field) as refused:
        check_spec(wrong)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("reference", ["${env:PASSWORD}", "${file:/run/secrets/kafka}"])
def test_a_secret_is_a_reference(reference: str) -> None:
    check_spec(spec("c1", producer_config={"sasl.password": reference}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            spec("c1", producer_config={"security.protocol": "SASL_SSL", "sasl.mechanisms": "NTLM"}),
            r"spec\.producer_config\[sasl\.mechanisms\].*'NTLM' is not served \(served: PLAIN, SCRAM-SHA-256",
        ),
        (
            spec("c1", consumer_config={"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-1"}),
            r"spec\.consumer_config\[sasl\.mechanism\].*'SCRAM-SHA-1' is not served",
        ),
        (
            spec("c1", producer_config={"security.protocol": "ssl", "ssl.crl.location": "/crl"}),
            r"spec\.producer_config\[ssl\.crl\.location\].*is not served",
        ),
    ],
)
def test_security_that_gateways_cannot_serve_is_refused(wrong: routing.ClusterSpec, said: str) -> None:
    with pytest.raises(InvalidField, match=said):
        check_spec(wrong)


def test_another_revision_than_expected_is_refused() -> None:
    expect_revision("c1", 0, 5)
    expect_revision("c1", 5, 5)
    with pytest.raises(Conflict, match="at revision 5, not 4"):
        expect_revision("c1", 4, 5)
