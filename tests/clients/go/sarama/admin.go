package sarama

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"mesh.test/clients/steer"
)

// Ask answers by ClusterAdmin, and by Client where that has more.
func (c *Client) Ask(_ context.Context, order steer.Order) (any, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	switch order.Name {
	case "create-topic":
		detail := sarama.TopicDetail{NumPartitions: int32(order.Int("partitions", 1)), ReplicationFactor: 1}
		return true, c.admin.CreateTopic(order.Text("topic"), &detail, false)
	case "delete-topic":
		return true, c.admin.DeleteTopic(order.Text("topic"))
	case "topics":
		topics, err := c.admin.ListTopics()
		return slices.Collect(maps.Keys(topics)), err
	case "partitions":
		return c.partitions(order.Text("topic"))
	case "topic-config":
		return c.topicConfig(order.Text("topic"))
	case "brokers":
		return c.brokers()
	case "groups":
		groups, err := c.admin.ListConsumerGroups()
		return slices.Collect(maps.Keys(groups)), err
	case "committed":
		return c.committed(order.Text("group"), order.List("topics"))
	}
	return nil, fmt.Errorf("no such order: %s", order.Name)
}

func (c *Client) connect() (err error) {
	if c.admin == nil {
		if c.client, err = sarama.NewClient([]string{c.entrance.Address}, c.config()); err == nil {
			c.admin, err = sarama.NewClusterAdminFromClient(c.client)
		}
	}
	return err
}

func (c *Client) partitions(topic string) (any, error) {
	described, err := c.admin.DescribeTopics([]string{topic})
	if err != nil {
		return nil, err
	}
	if described[0].Err != sarama.ErrNoError {
		return nil, described[0].Err
	}
	return len(described[0].Partitions), nil
}

func (c *Client) topicConfig(topic string) (any, error) {
	entries, err := c.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	config := map[string]string{}
	for _, entry := range entries {
		config[entry.Name] = entry.Value
	}
	return config, err
}

func (c *Client) brokers() (any, error) {
	brokers, _, err := c.admin.DescribeCluster()
	var addresses []string
	for _, broker := range brokers {
		addresses = append(addresses, broker.Addr())
	}
	return addresses, err
}

func (c *Client) committed(group string, topics []string) (any, error) {
	if err := c.client.RefreshMetadata(topics...); err != nil {
		return nil, err
	}
	wanted := map[string][]int32{}
	for _, topic := range topics {
		partitions, err := c.client.Partitions(topic)
		if err != nil {
			return nil, err
		}
		wanted[topic] = partitions
	}
	answer, err := c.admin.ListConsumerGroupOffsets(group, wanted)
	if err != nil {
		return nil, err
	}
	committed := map[string]int64{}
	var failure error
	for topic, partitions := range answer.Blocks {
		for partition, block := range partitions {
			if block.Err != sarama.ErrNoError {
				failure = errors.Join(failure, block.Err)
			} else if block.Offset >= 0 {
				committed[fmt.Sprintf("%s-%d", topic, partition)] = block.Offset
			}
		}
	}
	return committed, failure
}
