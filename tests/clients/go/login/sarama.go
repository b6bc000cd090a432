package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"mesh.test/clients/conversation"
)

func bySarama(ctx context.Context, door door, topics, values []string) ([]string, error) {
	client, err := sarama.NewClient([]string{door.bootstrap}, saramaConfig(door))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, err
	}
	var messages []*sarama.ProducerMessage
	for _, topic := range topics {
		for _, value := range values {
			messages = append(messages, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
		}
	}
	if err := producer.SendMessages(messages); err != nil {
		var each sarama.ProducerErrors
		if errors.As(err, &each) {
			return nil, each[0]
		}
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, topic := range topics {
		partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for range values {
			select {
			case message := <-partition.Messages():
				found = append(found, string(message.Value))
			case err := <-partition.Errors():
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return found, nil
}

func saramaConfig(door door) *sarama.Config {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Return.Errors = true
	config.Net.MaxOpenRequests = 1 // the library insists
	config.Net.LocalAddr = door.local
	config.Net.TLS.Enable, config.Net.TLS.Config = true, door.tls
	if door.mechanism == "" {
		return config
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(door.mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = door.name, door.secret
	config.Net.SASL.TokenProvider = token(door.secret)
	hash := scram.SHA256
	if door.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation.Conversation{Hash: hash} }
	return config
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}
