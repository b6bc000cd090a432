"""Reports this sidecar and its instances to control, and carries out the orders that operators give through control."""
