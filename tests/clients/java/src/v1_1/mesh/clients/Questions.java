package mesh.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.config.ConfigResource;

/** Answers by the AdminClient of its time, kept once it was needed; groups it does not know. */
final class Questions {
    private static AdminClient admin;

    private Questions() {}

    static Object answer(Order order) throws Exception {
        if (admin == null) {
            admin = AdminClient.create(order.clientConfig(Map.of("request.timeout.ms", "15000")));
        }
        try {
            return ask(order);
        } catch (ExecutionException failed) {
            throw (Exception) failed.getCause();
        }
    }

    private static Object ask(Order order) throws Exception {
        switch (order.name()) {
            case "copy":
                return Copy.run(order);
            case "create-topic":
                NewTopic topic = new NewTopic(order.text("topic"), (int) order.number("partitions", 1), (short) 1);
                admin.createTopics(List.of(topic)).all().get();
                return true;
            case "delete-topic":
                admin.deleteTopics(order.list("topic")).all().get();
                return true;
            case "topics":
                return admin.listTopics().names().get();
            case "partitions":
                return admin.describeTopics(order.list("topic")).all().get().get(order.text("topic")).partitions().size();
            case "topic-config":
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, order.text("topic"));
                Map<String, Object> config = new TreeMap<>();
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                        .forEach(entry -> config.put(entry.name(), entry.value()));
                return config;
            case "brokers":
                List<String> brokers = new ArrayList<>();
                for (Node node : admin.describeCluster().nodes().get()) {
                    brokers.add(node.host() + ":" + node.port());
                }
                return brokers;
            default:
                throw new IllegalArgumentException("no such order: " + order.name());
        }
    }
}
