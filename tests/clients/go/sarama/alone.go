package sarama

import (
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"

	"mesh.test/clients/steer"
)

// consumeAlone reads every partition of the topics, from the offsets that the group has in Kafka, as 0.8.2 offered it.
func consumeAlone(ctx context.Context, bootstrap string, config *sarama.Config, order steer.Order) (failure error) {
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer func() { failure = errors.Join(failure, client.Close()) }()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer func() { failure = errors.Join(failure, consumer.Close()) }()
	offsets, err := sarama.NewOffsetManagerFromClient(order.Text("group"), client)
	if err != nil {
		return err
	}
	defer func() { failure = errors.Join(failure, offsets.Close()) }()

	reader := &alone{messages: make(chan taken), closed: make(chan struct{})}
	defer reader.close()
	for _, topic := range order.List("topics") {
		partitions, err := client.Partitions(topic)
		if err != nil {
			return err
		}
		for _, partition := range partitions {
			if err := reader.open(consumer, offsets, topic, partition); err != nil {
				return err
			}
		}
	}
	for left := order.Int("count", 0); !order.Has("count") || left > 0; left-- {
		select {
		case <-ctx.Done():
			return nil
		case next := <-reader.messages:
			steer.Got(received(next.message))
			next.offsets.MarkOffset(next.message.Offset+1, "")
			next.offsets.ResetOffset(next.message.Offset+1, "")
		}
	}
	offsets.Commit()
	return nil
}

type alone struct {
	messages chan taken
	closed   chan struct{}
	readers  sync.WaitGroup
	offsets  []sarama.PartitionOffsetManager
}

type taken struct {
	message *sarama.ConsumerMessage
	offsets sarama.PartitionOffsetManager
}

func (a *alone) open(
	consumer sarama.Consumer, offsets sarama.OffsetManager, topic string, partition int32,
) error {
	managed, err := offsets.ManagePartition(topic, partition)
	if err != nil {
		return err
	}
	a.offsets = append(a.offsets, managed)
	next, _ := managed.NextOffset()
	reading, err := consumer.ConsumePartition(topic, partition, next)
	if err != nil {
		return err
	}
	a.readers.Go(func() {
		for a.forward(reading, managed) {
			// Its offset was out of range, and the library leaves it to the application to begin anew.
			if reading, err = consumer.ConsumePartition(topic, partition, sarama.OffsetOldest); err != nil {
				steer.Error("consume", err)
				return
			}
		}
	})
	return nil
}

// forward hands on what is read, and says whether it ended because the offset is out of range.
func (a *alone) forward(reading sarama.PartitionConsumer, managed sarama.PartitionOffsetManager) bool {
	defer reading.AsyncClose()
	for {
		select {
		case <-a.closed:
			return false
		case message, open := <-reading.Messages():
			if !open {
				err := <-reading.Errors()
				return err != nil && errors.Is(err.Err, sarama.ErrOffsetOutOfRange)
			}
			select {
			case a.messages <- taken{message, managed}:
			case <-a.closed: // what was fetched beyond the count
				return false
			}
		case err := <-reading.Errors():
			if err != nil && errors.Is(err.Err, sarama.ErrOffsetOutOfRange) {
				return true
			}
			if err != nil {
				steer.Error("consume", err)
			}
		}
	}
}

func (a *alone) close() {
	close(a.closed)
	a.readers.Wait()
	for _, offsets := range a.offsets {
		offsets.AsyncClose()
	}
}
