"""The meaning of requests over several clusters: which call goes where, and how the answers become one. No I/O.

Handlers are in a folder for each subject: `mesh`, `topics`, `records`, `groups`, `transactions`, `clusters`. `older`
has the versions that Kafka 4.0 gave up, `telemetry` the metrics that clients send about themselves. `rows` lists all
handlers by the same subjects, and `table` puts the lists together. `plan` defines what a handler may know and say; the
other modules here serve several subjects.
"""
