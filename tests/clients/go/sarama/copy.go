package sarama

import (
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"

	"mesh.test/clients/steer"
)

// collector takes messages of a group's claims until it has enough.
type collector struct {
	stop  context.CancelFunc
	mutex sync.Mutex
	want  int
	taken []*sarama.ConsumerMessage
}

func (c *collector) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *collector) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *collector) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			c.take(message)
		}
	}
}

func (c *collector) take(message *sarama.ConsumerMessage) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.taken) < c.want {
		c.taken = append(c.taken, message)
	}
	if len(c.taken) == c.want {
		c.stop()
	}
}

// Copy reads as a member of the group, and commits its offsets by the producer.
func (c *Client) Copy(ctx context.Context, order steer.Order) (failure error) {
	messages, err := c.collect(ctx, order)
	if err != nil {
		return err
	}
	config := c.config()
	config.Producer.Transaction.ID = order.Text("id")
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{c.entrance.Address}, config)
	if err != nil {
		return err
	}
	defer func() { failure = errors.Join(failure, producer.Close()) }()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	copies, offsets := copied(messages, order.List("topics"))
	if err := producer.SendMessages(copies); err != nil {
		return err
	}
	if err := producer.AddOffsetsToTxn(offsets, order.Text("group")); err != nil {
		return err
	}
	if order.Flag("commits") {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func (c *Client) collect(ctx context.Context, order steer.Order) (taken []*sarama.ConsumerMessage, failure error) {
	config := c.config()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	group, err := sarama.NewConsumerGroup([]string{c.entrance.Address}, order.Text("group"), config)
	if err != nil {
		return nil, err
	}
	defer func() { failure = errors.Join(failure, group.Close()) }()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	handler := &collector{stop: stop, want: order.Int("count", 0)}
	for reading.Err() == nil {
		if err := group.Consume(reading, []string{order.Text("source")}, handler); err != nil {
			return nil, err
		}
	}
	return handler.taken, ctx.Err()
}

func copied(messages []*sarama.ConsumerMessage, topics []string) (
	[]*sarama.ProducerMessage, map[string][]*sarama.PartitionOffsetMetadata,
) {
	var copies []*sarama.ProducerMessage
	ends := map[string]map[int32]int64{}
	for _, message := range messages {
		for _, topic := range topics {
			copies = append(copies, &sarama.ProducerMessage{
				Topic: topic, Key: sarama.ByteEncoder(message.Key), Value: sarama.ByteEncoder(message.Value),
			})
		}
		if ends[message.Topic] == nil {
			ends[message.Topic] = map[int32]int64{}
		}
		ends[message.Topic][message.Partition] = max(ends[message.Topic][message.Partition], message.Offset+1)
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	for topic, partitions := range ends {
		for partition, end := range partitions {
			offset := &sarama.PartitionOffsetMetadata{Partition: partition, Offset: end}
			offsets[topic] = append(offsets[topic], offset)
		}
	}
	return copies, offsets
}
