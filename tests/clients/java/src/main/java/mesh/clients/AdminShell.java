package mesh.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** Answers each line of stdin, "command argument...", with one line: {"result":...} or {"error":...}. Ends with stdin. */
final class AdminShell {
    private final Options options;

    AdminShell(Options options) {
        this.options = options;
    }

    void run() throws Exception {
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Admin admin = Admin.create(options.clientConfig(Map.of("request.timeout.ms", "10000", "default.api.timeout.ms", "15000")))) {
            for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
                try {
                    Out.line("result", answer(admin, line.split(" ")));
                } catch (ExecutionException failed) {
                    Out.error(line, failed.getCause());
                }
            }
        }
    }

    private Object answer(Admin admin, String[] command) throws Exception {
        String name = command.length > 1 ? command[1] : null;
        switch (command[0]) {
            case "create-topic":
                NewTopic topic = new NewTopic(name, Optional.of(Integer.valueOf(command[2])), Optional.empty());
                admin.createTopics(List.of(topic)).all().get();
                return true;
            case "delete-topic":
                admin.deleteTopics(List.of(name)).all().get();
                return true;
            case "topics":
                return admin.listTopics(new ListTopicsOptions().listInternal(false)).names().get();
            case "describe-topic":
                return describeTopic(admin, name);
            case "topic-config":
                return topicConfig(admin, name);
            case "cluster":
                return cluster(admin.describeCluster());
            case "groups":
                List<String> groups = new ArrayList<>();
                admin.listConsumerGroups().all().get().forEach(group -> groups.add(group.groupId()));
                return groups;
            case "describe-group":
                ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
                return Out.object("state", group.state(), "members", group.members().size());
            case "committed":
                Map<String, Object> committed = new TreeMap<>();
                admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get()
                        .forEach((partition, offset) -> committed.put(partition.toString(), offset.offset()));
                return committed;
            case "end-offsets":
                return endOffsets(admin, name);
            default:
                throw new IllegalArgumentException("no such command: " + command[0]);
        }
    }

    private static Object describeTopic(Admin admin, String name) throws Exception {
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo partition : description(admin, name).partitions()) {
            partitions.add(Out.object("partition", partition.partition(), "leader", partition.leader().id()));
        }
        return partitions;
    }

    private static Object topicConfig(Admin admin, String name) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        Map<String, Object> config = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            config.put(entry.name(), entry.value());
        }
        return config;
    }

    private static Object cluster(DescribeClusterResult cluster) throws Exception {
        List<Object> nodes = new ArrayList<>();
        for (Node node : cluster.nodes().get()) {
            nodes.add(Out.object("id", node.id(), "address", node.host() + ":" + node.port()));
        }
        return Out.object("id", cluster.clusterId().get(), "nodes", nodes);
    }

    private static Object endOffsets(Admin admin, String name) throws Exception {
        Map<TopicPartition, OffsetSpec> latest = new TreeMap<>((a, b) -> Integer.compare(a.partition(), b.partition()));
        for (TopicPartitionInfo partition : description(admin, name).partitions()) {
            latest.put(new TopicPartition(name, partition.partition()), OffsetSpec.latest());
        }
        Map<String, Object> ends = new TreeMap<>();
        admin.listOffsets(latest).all().get().forEach((partition, end) -> ends.put(partition.toString(), end.offset()));
        return ends;
    }

    /** kafka-clients 3.1 renamed values() to topicNameValues(), 4.0 removed the old name: the one place where a single source needs help. */
    @SuppressWarnings("unchecked")
    private static TopicDescription description(Admin admin, String name) throws Exception {
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
