package mesh.clients;

/** The class KafkaConsumer of 0.8.2 is a draft that always answers null, and the consumer of the core needs ZooKeeper. */
final class Consume {
    private final Order order;

    Consume(Order order, Stop stop) {
        this.order = order;
    }

    boolean run() {
        throw new UnsupportedOperationException(order.name() + ": kafka-clients 0.8.2 has a producer only");
    }
}
