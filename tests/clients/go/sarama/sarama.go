// Package sarama is IBM/sarama behind the orders of the tests, told which Kafka version it speaks to.
package sarama

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"mesh.test/clients/conversation"
	"mesh.test/clients/steer"
)

// Client opens new connections for each order to produce or consume, and keeps one for questions.
type Client struct {
	entrance steer.Entrance
	version  sarama.KafkaVersion
	admin    sarama.ClusterAdmin
	client   sarama.Client
}

// New connects when it is first used. The version decides which protocol versions the library uses.
func New(entrance steer.Entrance, version string) (*Client, error) {
	parsed, err := sarama.ParseKafkaVersion(version)
	return &Client{entrance: entrance, version: parsed}, err
}

func (c *Client) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = c.version
	config.Metadata.AllowAutoTopicCreation = false
	if c.entrance.User != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		config.Net.SASL.User, config.Net.SASL.Password = c.entrance.User, c.entrance.Password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &conversation.Conversation{Hash: scram.SHA256}
		}
	}
	return config
}

var (
	acks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}

	codecs = map[string]sarama.CompressionCodec{
		"none":   sarama.CompressionNone,
		"gzip":   sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy,
		"lz4":    sarama.CompressionLZ4,
		"zstd":   sarama.CompressionZSTD,
	}
)

// Produce sends with one asynchronous producer, idempotent where the order says so and the version can.
func (c *Client) Produce(ctx context.Context, order steer.Order) error {
	config := c.config()
	config.Producer.RequiredAcks = acks[order.Text("acks")]
	config.Producer.Compression = codecs[order.Text("compression")]
	config.Producer.Return.Successes = true
	if order.Flag("idempotent") && c.version.IsAtLeast(sarama.V0_11_0_0) {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1 // the library insists
	}
	producer, err := sarama.NewAsyncProducer([]string{c.entrance.Address}, config)
	if err != nil {
		return err
	}
	var untold, listeners sync.WaitGroup
	listeners.Go(func() {
		for sent := range producer.Successes() {
			steer.Acked(sent.Metadata.(string), sent.Topic, sent.Partition, sent.Offset)
			untold.Done()
		}
	})
	listeners.Go(func() {
		for failed := range producer.Errors() {
			steer.Error("produce", failed.Err)
			untold.Done()
		}
	})
	order.Each(ctx, func(record steer.Record) {
		untold.Add(1)
		producer.Input() <- raw(record)
	})
	untold.Wait() // a producer that closes drops what it would have sent again
	producer.AsyncClose()
	listeners.Wait()
	return nil
}

func raw(record steer.Record) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{
		Topic: record.Topic, Value: sarama.ByteEncoder(record.Value), Timestamp: record.Timestamp, Metadata: record.ID,
	}
	if record.Key != nil {
		message.Key = sarama.ByteEncoder(record.Key)
	}
	for _, header := range record.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
	}
	return message
}

func received(message *sarama.ConsumerMessage) steer.Received {
	headers := map[string]string{}
	for _, header := range message.Headers {
		headers[string(header.Key)] = string(header.Value)
	}
	return steer.Received{
		Value:     string(message.Value),
		Topic:     message.Topic,
		Partition: message.Partition,
		Offset:    message.Offset,
		Timestamp: steer.Milliseconds(message.Timestamp),
		Key:       steer.Text(message.Key),
		Headers:   headers,
	}
}

// Consume reads as a member of a group, or, with a version from before there were any, alone with the group's offsets.
func (c *Client) Consume(ctx context.Context, order steer.Order) error {
	config := c.config()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	if order.Text("isolation") == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if c.version.IsAtLeast(sarama.V0_10_2_0) {
		return consumeInGroup(ctx, c.entrance.Address, config, order)
	}
	return consumeAlone(ctx, c.entrance.Address, config, order)
}
