// Package conversation is xdg-go/scram as sarama wants it; sarama has no SCRAM of its own.
package conversation

import "github.com/xdg-go/scram"

// Conversation is one login.
type Conversation struct {
	*scram.ClientConversation
	Hash scram.HashGeneratorFcn
}

// Begin is called before the first step.
func (c *Conversation) Begin(name, password, authorization string) error {
	client, err := c.Hash.NewClient(name, password, authorization)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
