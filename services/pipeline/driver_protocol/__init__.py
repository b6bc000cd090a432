"""What `serve` and the driver of a job say to each other: orders, reports of jobs, accepted losses."""
