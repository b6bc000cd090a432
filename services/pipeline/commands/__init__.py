"""The command line: a file for each job's command, and their shared parts in `foreground`."""
