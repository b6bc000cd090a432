"""Commands about listeners of gateways."""
