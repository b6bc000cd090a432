"""How a topology falls into parts, and what may take its place."""

from collections.abc import Callable

import pytest

from services.sidecar.streams import Topology, TopologyError, Tumbling
from services.sidecar.streams.plan import Plan, check_partitions


def plan(define: Callable[[Topology], object]) -> Plan:
    topology = Topology("shop")
    define(topology)
    return topology.plan("app")


def counted(topology: Topology) -> None:
    topology.stream("orders").group(lambda key, order: order["city"]).count(store="cities")


def test_a_part_is_what_hangs_together_without_a_topic_between() -> None:
    def define(topology: Topology) -> None:
        customers = topology.table("customers")
        topology.stream("orders").join(customers, lambda order, customer: order).to("out")
        counted_orders = topology.stream("clicks").group(lambda key, click: click["page"]).count(store="pages")
        counted_orders.updates().to("pages")

    parts = {part.lead: (set(part.sources), set(part.stores)) for part in plan(define).parts}
    assert parts == {
        "customers": ({"customers", "orders"}, {"customers"}),
        "clicks": ({"clicks"}, set()),
        "app-shop-pages-repartition": ({"app-shop-pages-repartition"}, {"pages"}),
    }


def test_names_in_kafka_are_made_of_application_topology_and_store() -> None:
    made = plan(counted)
    assert (made.group, made.changelog("cities")) == ("app-shop", "app-shop-cities-changelog")
    assert [made.topic_of(target) for target in made.targets] == ["app-shop-cities-repartition"]


def test_topics_that_are_joined_are_split_alike() -> None:
    def define(topology: Topology) -> None:
        topology.stream("orders").join(topology.table("customers"), lambda order, customer: order)

    check_partitions(plan(define), {"orders": 3, "customers": 3})
    with pytest.raises(TopologyError, match="customers has 2, orders has 3 partitions"):
        check_partitions(plan(define), {"orders": 3, "customers": 2})


def other_window(topology: Topology) -> None:
    topology.stream("orders").group(lambda key, order: order["city"]).windows(Tumbling(10)).count(store="cities")


def other_source(topology: Topology) -> None:
    topology.stream("orders").group().count(store="cities")


def without_its_repartition(topology: Topology) -> None:
    topology.stream("orders").to("copy")


def led_by_another(topology: Topology) -> None:
    customers = topology.table("customers")
    orders = topology.stream("orders").join(customers, lambda order, customer: order)
    orders.group(lambda key, order: order["city"]).count(store="cities")


@pytest.mark.parametrize(
    ("define", "words"),
    [
        (
            led_by_another,
            "the partitions of 'customers' would divide .*today 'orders' does.*Declare 'orders' first",
        ),
        (other_window, "has one value for each key, and the new definition wants windows of 10 ms"),
        (other_source, "would be in other partitions"),
        (without_its_repartition, "nothing reads 'app-shop-cities-repartition'"),
    ],
)
def test_a_definition_that_cannot_go_on_with_the_state_is_refused_by_name(
    define: Callable[[Topology], object], words: str
) -> None:
    with pytest.raises(TopologyError, match=words):
        plan(counted).replaceable_by(plan(define))


def test_operators_may_change_around_a_store_that_stays() -> None:
    def define(topology: Topology) -> None:
        orders = topology.stream("orders").filter(lambda key, order: order["city"] != "Rome")
        orders.group(lambda key, order: order["city"]).count(store="cities").updates().to("cities")
        orders.group(lambda key, order: order["fruit"]).count(store="fruit")

    plan(counted).replaceable_by(plan(define))
