"""Commands about tenants."""
