package sarama

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"mesh.test/clients/steer"
)

const commitEvery = 500 * time.Millisecond

// member reads the claims of a group's member, which come concurrently, one for each partition.
type member struct {
	stop     context.CancelFunc
	endless  bool
	mutex    sync.Mutex
	left     int
	commitAt time.Time
}

func consumeInGroup(ctx context.Context, bootstrap string, config *sarama.Config, order steer.Order) (failure error) {
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, order.Text("group"), config)
	if err != nil {
		return err
	}
	defer func() { failure = errors.Join(failure, group.Close()) }()
	go func() {
		for err := range group.Errors() {
			if !errors.Is(err, sarama.ErrOffsetOutOfRange) { // the library resets by itself, and tells
				steer.Error("consume", err)
			}
		}
	}()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	handler := &member{stop: stop, endless: !order.Has("count"), left: order.Int("count", 0)}
	for reading.Err() == nil {
		if err := group.Consume(reading, order.List("topics"), handler); err != nil {
			return err
		}
	}
	return nil
}

func (m *member) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup runs when all claims have ended, and while the member still has its partitions.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.take(session, message)
		}
	}
}

func (m *member) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if !m.endless && m.left == 0 {
		return
	}
	steer.Got(received(message))
	// Mark goes forward only, Reset goes back only: after a topic moved, its offsets may be lower.
	session.MarkOffset(message.Topic, message.Partition, message.Offset+1, "")
	session.ResetOffset(message.Topic, message.Partition, message.Offset+1, "")
	if m.endless {
		if time.Now().After(m.commitAt) {
			session.Commit()
			m.commitAt = time.Now().Add(commitEvery)
		}
	} else if m.left--; m.left == 0 {
		m.stop()
	}
}
