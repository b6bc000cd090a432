"""Records to the backend: batches, what the backend says of them, and what follows from it.

One engine for all that is pushed: the reactive consumer, dead letters, replays, streams.
"""
