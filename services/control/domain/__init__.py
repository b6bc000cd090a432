"""The decisions of control and their reasons: aggregates, commands in, events out. No I/O."""
