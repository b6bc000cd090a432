// Command clients is a Kafka client for tests to steer: "clients LIBRARY BOOTSTRAP [KAFKA-VERSION]".
//
// The bootstrap may begin with USER:PASSWORD@: then the client logs in by SCRAM-SHA-256.
package main

import (
	"fmt"
	"os"

	"mesh.test/clients/franz"
	"mesh.test/clients/sarama"
	"mesh.test/clients/segment"
	"mesh.test/clients/steer"
)

func main() {
	client, err := open(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	steer.Serve(client)
}

func open(arguments []string) (steer.Client, error) {
	switch {
	case len(arguments) == 2 && arguments[0] == "franz-go":
		return franz.New(steer.EntranceOf(arguments[1])), nil
	case len(arguments) == 2 && arguments[0] == "kafka-go":
		return segment.New(steer.EntranceOf(arguments[1]))
	case len(arguments) == 3 && arguments[0] == "sarama":
		return sarama.New(steer.EntranceOf(arguments[1]), arguments[2])
	}
	return nil, fmt.Errorf("expected LIBRARY BOOTSTRAP, and for sarama a Kafka version; got %q", arguments)
}
