package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func byFranz(ctx context.Context, door door, topic string, values []string) error {
	mechanism, err := franzMechanism(door)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(door.bootstrap), kgo.DialTLSConfig(door.trusts), kgo.SASL(mechanism), kgo.DefaultProduceTopic(topic),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil { // to produce, the library would try to log in again and again
		return err
	}
	records := make([]*kgo.Record, len(values))
	for n, value := range values {
		records[n] = kgo.StringRecord(value)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func franzMechanism(door door) (sasl.Mechanism, error) {
	switch door.mechanism {
	case "PLAIN":
		return plain.Auth{User: user, Pass: door.secret}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: door.secret}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: door.secret}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: door.secret}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("no mechanism %q", door.mechanism)
}
