"""The traffic through the gateway, counted call by call."""
