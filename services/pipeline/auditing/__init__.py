"""What the job `audit` needs beside its DataFrames: a stream for each cluster, how far it is, malformed events."""
