"""The command line: a file for each job's command, and what they share in `foreground`."""
