// Package segment is segmentio/kafka-go behind the orders of the tests.
package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/scram"

	"mesh.test/clients/steer"
)

// A batch is sent when it is full or this old; the library's own second would make each test wait for it.
const batchTimeout = 10 * time.Millisecond

// A fetch waits so long for records; the library's own 10 s would hold up the leaving of a group.
const fetchWait = 500 * time.Millisecond

// The library's own time-out, which a dialer of one's own has to name.
const dialTimeout = 10 * time.Second

const commitEvery = 500 * time.Millisecond

// Client opens new connections for each order.
type Client struct {
	address string
	login   sasl.Mechanism
}

// New connects when it is used.
func New(entrance steer.Entrance) (*Client, error) {
	client := &Client{address: entrance.Address}
	if entrance.User == "" {
		return client, nil
	}
	login, err := scram.Mechanism(scram.SHA256, entrance.User, entrance.Password)
	client.login = login
	return client, err
}

var (
	acks = map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}

	codecs = map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
)

// Produce sends asynchronously; the library has no idempotent producer.
func (c *Client) Produce(ctx context.Context, order steer.Order) error {
	transport := &kafka.Transport{SASL: c.login}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{
		Addr:         kafka.TCP(c.address),
		Transport:    transport,
		Balancer:     kafka.Murmur2Balancer{},
		RequiredAcks: acks[order.Text("acks")],
		Compression:  codecs[order.Text("compression")],
		BatchTimeout: batchTimeout,
		Async:        true,
		Completion:   tell,
	}
	order.Each(ctx, func(record steer.Record) {
		// Not with ctx: what was sent before the stop shall be delivered.
		if err := writer.WriteMessages(context.Background(), raw(record)); err != nil {
			steer.Error("produce", err)
		}
	})
	return writer.Close()
}

func tell(messages []kafka.Message, err error) {
	if err != nil {
		steer.Error("produce", err)
		return
	}
	for _, message := range messages {
		steer.Acked(message.WriterData.(string), message.Topic, int32(message.Partition), message.Offset)
	}
}

func raw(record steer.Record) kafka.Message {
	message := kafka.Message{
		Topic: record.Topic, Key: record.Key, Value: record.Value, Time: record.Timestamp, WriterData: record.ID,
	}
	for _, header := range record.Headers {
		message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
	}
	return message
}

// Consume reads as a member of a group; without a count it commits twice a second.
func (c *Client) Consume(ctx context.Context, order steer.Order) (failure error) {
	config := kafka.ReaderConfig{
		Dialer:      &kafka.Dialer{Timeout: dialTimeout, DualStack: true, SASLMechanism: c.login},
		Brokers:     []string{c.address},
		GroupID:     order.Text("group"),
		GroupTopics: order.List("topics"),
		StartOffset: kafka.FirstOffset,
		MaxWait:     fetchWait,
		ErrorLogger: kafka.LoggerFunc(func(format string, values ...any) {
			println(fmt.Sprintf(format, values...))
		}),
	}
	if !order.Has("count") {
		config.CommitInterval = commitEvery
	}
	if order.Text("isolation") == "read_committed" {
		config.IsolationLevel = kafka.ReadCommitted
	}
	reader := kafka.NewReader(config)
	defer func() { failure = errors.Join(failure, reader.Close()) }()
	var read []kafka.Message
	for !order.Has("count") || len(read) < order.Int("count", 0) {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		steer.Got(received(message))
		if order.Has("count") {
			read = append(read, message)
		} else if err := reader.CommitMessages(ctx, message); err != nil && ctx.Err() == nil {
			steer.Error("commit", err)
		}
	}
	return reader.CommitMessages(context.Background(), read...)
}

func received(message kafka.Message) steer.Received {
	headers := map[string]string{}
	for _, header := range message.Headers {
		headers[header.Key] = string(header.Value)
	}
	return steer.Received{
		Value:     string(message.Value),
		Topic:     message.Topic,
		Partition: int32(message.Partition),
		Offset:    message.Offset,
		Timestamp: message.Time.UnixMilli(),
		Key:       steer.Text(message.Key),
		Headers:   headers,
	}
}

// questions is the library's Client, which has one method for each API, with an order.
type questions struct {
	*kafka.Client
	steer.Order
}

// Copy fails: the library has no transactions.
func (c *Client) Copy(context.Context, steer.Order) error {
	return errors.New("kafka-go has no transactions")
}

// Ask answers with new connections: the library's pools remember the topics of a cluster for seconds.
func (c *Client) Ask(ctx context.Context, order steer.Order) (any, error) {
	transport := &kafka.Transport{SASL: c.login}
	defer transport.CloseIdleConnections()
	return questions{&kafka.Client{Addr: kafka.TCP(c.address), Transport: transport}, order}.answer(ctx)
}

func (q questions) answer(ctx context.Context) (any, error) {
	switch q.Name {
	case "create-topic":
		wanted := kafka.TopicConfig{
			Topic: q.Text("topic"), NumPartitions: q.Int("partitions", 1), ReplicationFactor: -1,
		}
		answer, err := q.Client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
		if err != nil {
			return nil, err
		}
		return true, answer.Errors[wanted.Topic]
	case "delete-topic":
		topic := q.Text("topic")
		answer, err := q.Client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		if err != nil {
			return nil, err
		}
		return true, answer.Errors[topic]
	case "topics":
		return q.topics(ctx)
	case "partitions":
		return q.partitions(ctx, q.Text("topic"))
	case "topic-config":
		return q.topicConfig(ctx, q.Text("topic"))
	case "brokers":
		return q.brokers(ctx)
	case "groups":
		return q.groups(ctx)
	case "committed":
		return q.committed(ctx, q.Text("group"), q.List("topics"))
	}
	return nil, fmt.Errorf("no such order: %s", q.Name)
}

func (q questions) topics(ctx context.Context) (any, error) {
	answer, err := q.Client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, topic := range answer.Topics {
		names = append(names, topic.Name)
	}
	return names, nil
}

func (q questions) partitions(ctx context.Context, topic string) (any, error) {
	answer, err := q.Client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	return len(answer.Topics[0].Partitions), answer.Topics[0].Error
}

func (q questions) topicConfig(ctx context.Context, topic string) (any, error) {
	wanted := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	answer, err := q.Client.DescribeConfigs(
		ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{wanted}})
	if err != nil {
		return nil, err
	}
	config := map[string]string{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		config[entry.ConfigName] = entry.ConfigValue
	}
	return config, answer.Resources[0].Error
}

func (q questions) brokers(ctx context.Context) (any, error) {
	answer, err := q.Client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, broker := range answer.Brokers {
		addresses = append(addresses, net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port)))
	}
	return addresses, nil
}

func (q questions) groups(ctx context.Context) (any, error) {
	answer, err := q.Client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, group := range answer.Groups {
		names = append(names, group.GroupID)
	}
	return names, answer.Error
}

// committed asks for each topic's partitions: this library has no "all topics" here.
func (q questions) committed(ctx context.Context, group string, topics []string) (any, error) {
	metadata, err := q.Client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, err
	}
	wanted := map[string][]int{}
	for _, topic := range metadata.Topics {
		for _, partition := range topic.Partitions {
			wanted[topic.Name] = append(wanted[topic.Name], partition.ID)
		}
	}
	answer, err := q.Client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: wanted})
	if err != nil {
		return nil, err
	}
	committed := map[string]int64{}
	for topic, partitions := range answer.Topics {
		for _, partition := range partitions {
			if partition.CommittedOffset >= 0 {
				committed[fmt.Sprintf("%s-%d", topic, partition.Partition)] = partition.CommittedOffset
			}
		}
	}
	return committed, answer.Error
}
