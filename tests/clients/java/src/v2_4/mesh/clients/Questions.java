package mesh.clients;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.config.ConfigResource;

/** Answers by one Admin, kept once it was needed. */
final class Questions {
    private static Admin admin;

    private Questions() {}

    static Object answer(Order order) throws Exception {
        if (admin == null) {
            admin = Admin.create(order.clientConfig(Map.of("request.timeout.ms", "10000", "default.api.timeout.ms", "15000")));
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
                Optional<Integer> partitions = Optional.of((int) order.number("partitions", 1));
                admin.createTopics(List.of(new NewTopic(order.text("topic"), partitions, Optional.empty()))).all().get();
                return true;
            case "delete-topic":
                admin.deleteTopics(order.list("topic")).all().get();
                return true;
            case "topics":
                return admin.listTopics(new ListTopicsOptions().listInternal(false)).names().get();
            case "partitions":
                return description(order.text("topic")).partitions().size();
            case "topic-config":
                return topicConfig(new ConfigResource(ConfigResource.Type.TOPIC, order.text("topic")));
            case "brokers":
                List<String> brokers = new ArrayList<>();
                for (Node node : admin.describeCluster().nodes().get()) {
                    brokers.add(node.host() + ":" + node.port());
                }
                return brokers;
            case "groups":
                List<String> groups = new ArrayList<>();
                admin.listConsumerGroups().all().get().forEach(group -> groups.add(group.groupId()));
                return groups;
            case "committed":
                Map<String, Object> committed = new TreeMap<>();
                admin.listConsumerGroupOffsets(order.text("group")).partitionsToOffsetAndMetadata().get()
                        .forEach((partition, offset) -> committed.put(partition.toString(), offset.offset()));
                return committed;
            default:
                throw new IllegalArgumentException("no such order: " + order.name());
        }
    }

    private static Object topicConfig(ConfigResource resource) throws Exception {
        Map<String, Object> config = new TreeMap<>();
        admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                .forEach(entry -> config.put(entry.name(), entry.value()));
        return config;
    }

    /** kafka-clients 3.1 renamed values() to topicNameValues(), 4.0 removed the old name: the one place where a single source needs help. */
    @SuppressWarnings("unchecked")
    private static TopicDescription description(String name) throws Exception {
        DescribeTopicsResult result = admin.describeTopics(List.of(name));
        Method futures;
        try {
            futures = DescribeTopicsResult.class.getMethod("topicNameValues");
        } catch (NoSuchMethodException olderThan31) {
            futures = DescribeTopicsResult.class.getMethod("values");
        }
        try {
            return ((Map<String, KafkaFuture<TopicDescription>>) futures.invoke(result)).get(name).get();
        } catch (InvocationTargetException failed) {
            throw new ExecutionException(failed.getCause());
        }
    }
}
