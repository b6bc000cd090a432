// Package franz is twmb/franz-go behind the orders of the tests.
package franz

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"mesh.test/clients/steer"
)

const commitEvery = 500 * time.Millisecond

// New topics are looked up so often; the library's own 5 s would be waited for in each test that makes one.
const metadataMinAge = 100 * time.Millisecond

// A fetch waits so long for records; with the library's own 5 s a reader notices a move of its topic as late.
const fetchMaxWait = 500 * time.Millisecond

// Client opens a new connection for each order to produce or consume, and keeps one for questions.
type Client struct {
	entrance steer.Entrance
	admin    *kadm.Client
}

// New connects when it is first used.
func New(entrance steer.Entrance) *Client {
	return &Client{entrance: entrance}
}

// door has the options with which each client of the library enters.
func (c *Client) door() []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(c.entrance.Address)}
	if c.entrance.User != "" {
		login := scram.Auth{User: c.entrance.User, Pass: c.entrance.Password}
		options = append(options, kgo.SASL(login.AsSha256Mechanism()))
	}
	return options
}

var (
	acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

	codecs = map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
)

// Produce sends with one producer, idempotent where the order says so.
func (c *Client) Produce(ctx context.Context, order steer.Order) error {
	options := append(c.door(),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RequiredAcks(acks[order.Text("acks")]),
		kgo.ProducerBatchCompression(codecs[order.Text("compression")]),
	)
	if !order.Flag("idempotent") {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	order.Each(ctx, func(record steer.Record) {
		// Not with ctx: what was sent before the stop shall be delivered.
		producer.Produce(context.Background(), raw(record), func(sent *kgo.Record, err error) {
			if err != nil {
				steer.Error("produce", err)
			} else {
				steer.Acked(record.ID, sent.Topic, sent.Partition, sent.Offset)
			}
		})
	})
	return producer.Flush(context.Background())
}

func raw(record steer.Record) *kgo.Record {
	sent := &kgo.Record{Topic: record.Topic, Key: record.Key, Value: record.Value, Timestamp: record.Timestamp}
	for _, header := range record.Headers {
		sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
	}
	return sent
}

// Consume reads as a member of a group; without a count it commits twice a second.
func (c *Client) Consume(ctx context.Context, order steer.Order) error {
	left := order.Int("count", 0)
	consumer, err := kgo.NewClient(c.reading(order)...)
	if err != nil {
		return err
	}
	defer consumer.CloseAllowingRebalance()
	var uncommitted []*kgo.Record
	commit := func() error {
		err := consumer.CommitRecords(context.Background(), uncommitted...)
		uncommitted = nil
		return err
	}
	commitDue := time.Now().Add(commitEvery)
	for {
		fetches := consumer.PollRecords(ctx, left)
		if ctx.Err() != nil {
			return commit()
		}
		for _, failed := range fetches.Errors() {
			// Told for information when an offset is out of range, as after a move; the library has begun anew.
			var begunAnew *kgo.ErrDataLoss
			if !errors.As(failed.Err, &begunAnew) {
				steer.Error(fmt.Sprintf("fetch %s-%d", failed.Topic, failed.Partition), failed.Err)
			}
		}
		fetches.EachRecord(func(record *kgo.Record) { steer.Got(received(record)) })
		uncommitted = append(uncommitted, fetches.Records()...)
		if order.Has("count") {
			if left -= fetches.NumRecords(); left == 0 {
				return commit()
			}
		} else if time.Now().After(commitDue) {
			if err := commit(); err != nil {
				steer.Error("commit", err)
			}
			commitDue = time.Now().Add(commitEvery)
		}
		consumer.AllowRebalance()
	}
}

func (c *Client) reading(order steer.Order) []kgo.Opt {
	options := append(c.door(),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.ConsumerGroup(order.Text("group")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	if order.Has("pattern") {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(order.Text("pattern")))
	} else {
		options = append(options, kgo.ConsumeTopics(order.List("topics")...))
	}
	if order.Text("isolation") == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return options
}

func received(record *kgo.Record) steer.Received {
	headers := map[string]string{}
	for _, header := range record.Headers {
		headers[header.Key] = string(header.Value)
	}
	return steer.Received{
		Value:     string(record.Value),
		Topic:     record.Topic,
		Partition: record.Partition,
		Offset:    record.Offset,
		Timestamp: record.Timestamp.UnixMilli(),
		Key:       steer.Text(record.Key),
		Headers:   headers,
	}
}

// Ask answers by kadm, the library's admin client.
func (c *Client) Ask(ctx context.Context, order steer.Order) (any, error) {
	if c.admin == nil {
		client, err := kgo.NewClient(c.door()...)
		if err != nil {
			return nil, err
		}
		c.admin = kadm.NewClient(client)
	}
	switch order.Name {
	case "create-topic":
		answer, err := c.admin.CreateTopic(ctx, int32(order.Int("partitions", 1)), -1, nil, order.Text("topic"))
		return true, errors.Join(err, answer.Err)
	case "delete-topic":
		answer, err := c.admin.DeleteTopic(ctx, order.Text("topic"))
		return true, errors.Join(err, answer.Err)
	case "topics":
		topics, err := c.admin.ListTopics(ctx)
		return topics.Names(), err
	case "partitions":
		topics, err := c.admin.ListTopics(ctx, order.Text("topic"))
		return len(topics[order.Text("topic")].Partitions), errors.Join(err, topics.Error())
	case "topic-config":
		return c.topicConfig(ctx, order.Text("topic"))
	case "brokers":
		return c.brokers(ctx)
	case "groups":
		groups, err := c.admin.ListGroups(ctx)
		return groups.Groups(), err
	case "committed":
		return c.committed(ctx, order.Text("group"))
	}
	return nil, fmt.Errorf("no such order: %s", order.Name)
}

func (c *Client) topicConfig(ctx context.Context, topic string) (any, error) {
	resources, err := c.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	config := map[string]string{}
	for _, entry := range resources[0].Configs {
		config[entry.Key] = entry.MaybeValue()
	}
	return config, resources[0].Err
}

func (c *Client) brokers(ctx context.Context) (any, error) {
	brokers, err := c.admin.ListBrokers(ctx)
	var addresses []string
	for _, broker := range brokers {
		addresses = append(addresses, net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port))))
	}
	return addresses, err
}

func (c *Client) committed(ctx context.Context, group string) (any, error) {
	offsets, err := c.admin.FetchOffsets(ctx, group)
	committed := map[string]int64{}
	offsets.Each(func(offset kadm.OffsetResponse) {
		committed[fmt.Sprintf("%s-%d", offset.Topic, offset.Partition)] = offset.At
	})
	return committed, errors.Join(err, offsets.Error())
}
