"""The gRPC face of control: requests in, commands and questions to the rest, responses and statuses out."""
