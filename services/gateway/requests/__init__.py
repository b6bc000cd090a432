"""What requests mean over several clusters: which call goes where, and how the answers become one. No I/O.

Handlers lie in a folder for each subject: `mesh`, `topics`, `records`, `groups`, `transactions`, `clusters`; versions that
Kafka 4.0 gave up in `older`, what clients tell of themselves in `telemetry`. `rows` lists them by the same subjects, and
`table` puts the lists together. `plan` is what a handler may know and say; the other modules here are what several
subjects need.
"""
