package franz

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"mesh.test/clients/steer"
)

// Copy uses the library's session for transactions of a group.
func (c *Client) Copy(ctx context.Context, order steer.Order) error {
	session, err := kgo.NewGroupTransactSession(append(c.door(),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.TransactionalID(order.Text("id")),
		kgo.ConsumerGroup(order.Text("group")),
		kgo.ConsumeTopics(order.Text("source")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return err
	}
	var failure kgo.FirstErrPromise
	for left := order.Int("count", 0); left > 0; {
		fetches := session.PollRecords(ctx, left)
		if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
			return err
		}
		left -= fetches.NumRecords()
		fetches.EachRecord(func(record *kgo.Record) {
			for _, topic := range order.List("topics") {
				session.Produce(ctx, &kgo.Record{Topic: topic, Key: record.Key, Value: record.Value}, failure.Promise())
			}
		})
	}
	if err := failure.Err(); err != nil {
		return err
	}
	commits := order.Flag("commits")
	committed, err := session.End(ctx, kgo.TransactionEndTry(commits))
	if err == nil && committed != commits {
		err = fmt.Errorf("to commit: %t, committed: %t", commits, committed)
	}
	return err
}
