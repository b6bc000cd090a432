package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func byFranz(ctx context.Context, door door, topics, values []string) ([]string, error) {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{LocalAddr: door.local}, Config: door.tls}
	options := []kgo.Opt{
		kgo.SeedBrokers(door.bootstrap), kgo.Dialer(dialer.DialContext), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if door.mechanism != "" {
		mechanism, err := franzMechanism(door)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil { // to produce, the library would try to log in again and again
		return nil, err
	}
	var records []*kgo.Record
	for _, topic := range topics {
		for _, value := range values {
			records = append(records, &kgo.Record{Topic: topic, Value: []byte(value)})
		}
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	var found []string
	for len(found) < len(records) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			found = append(found, string(record.Value))
		}
	}
	return found, nil
}

func franzMechanism(door door) (sasl.Mechanism, error) {
	switch door.mechanism {
	case "PLAIN":
		return plain.Auth{User: door.name, Pass: door.secret}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: door.name, Pass: door.secret}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: door.name, Pass: door.secret}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: door.secret}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("no mechanism %q", door.mechanism)
}
