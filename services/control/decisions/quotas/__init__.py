"""Commands about quotas of clients."""
