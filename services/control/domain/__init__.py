"""What control decides and why: aggregates, commands in, events out. No I/O."""
