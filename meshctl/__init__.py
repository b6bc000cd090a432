"""The operator's command line of Kafka Mesh. It speaks gRPC to control, and nothing but that."""

import os

# gRPC's own log lines would stand between ours: what they say comes to us as errors. Read when grpc is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
