"""Requests about whole clusters: access rights, quotas, users, tokens, features, brokers."""
