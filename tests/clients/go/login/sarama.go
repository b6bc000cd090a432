package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"mesh.test/clients/conversation"
)

func bySarama(_ context.Context, door door, topic string, values []string) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1 // the library insists
	config.Net.TLS.Enable, config.Net.TLS.Config = true, door.trusts
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(door.mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = user, door.secret
	config.Net.SASL.TokenProvider = token(door.secret)
	hash := scram.SHA256
	if door.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation.Conversation{Hash: hash} }
	producer, err := sarama.NewSyncProducer([]string{door.bootstrap}, config)
	if err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, len(values))
	for n, value := range values {
		messages[n] = &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
	}
	return errors.Join(producer.SendMessages(messages), producer.Close())
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}
