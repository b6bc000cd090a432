"""What belongs to whole clusters: rights, quotas, users, tokens, features, brokers."""
