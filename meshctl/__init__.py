"""The operator's command line of Kafka Mesh. It speaks gRPC to control, and nothing but that."""
