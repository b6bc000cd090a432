"""What requests mean over several clusters: which call goes where, and how the answers become one. No I/O.

Handlers lie in a folder for each subject: `mesh`, `topics`, `records`, `groups`, `transactions`, `clusters`.
`older` has the versions that Kafka 4.0 gave up, `telemetry` what clients tell of themselves. `rows` lists all handlers
by the same subjects, and `table` puts the lists together. `plan` is what a handler may know and say; the other modules
here are what several subjects need.
"""
