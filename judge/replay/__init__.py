"""The replayer: sends the recorded bytes of clients to two Kafka endpoints, and tells where their answers differ."""
