"""The member `kafka-mesh pipeline serve`: carries out what control orders, each order by a driver of its own."""
