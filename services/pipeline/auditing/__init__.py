"""The parts of the job `audit` beside its DataFrames: a stream for each cluster, progress, malformed events."""
