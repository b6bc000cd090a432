"""Kafka over HTTP for the one backend that this process stands beside: HTTP in and Kafka out, Kafka in and HTTP out."""
