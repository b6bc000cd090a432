"""What flows through the gateway, counted call by call."""
