"""Transactions: one home cluster for each transactional id, exact there; over several only where a rule says so.

Theory of operation
1. InitProducerId comes before any topic is known, so the home of a transactional id is decided by its name alone: by
   the rule that matches it, else it is the mesh's home cluster (`home`). Every gateway comes to the same answer.
2. The coordinator at home does all of it: its producer id and epoch reach the client as they are, and requests reach it
   with another correlation id and nothing else changed. Nothing about a transaction is kept here. Topics that come back
   to a cluster do not change these ids either (`wire.batches`): the coordinator knows no others.
3. What the home can't do exactly is refused before anything is lost, with an error that ends the transaction at once
   and lets the producer go on, and a log line that names both clusters: partitions of topics that live elsewhere,
   offsets of such topics, and offsets of members whose group lives elsewhere.
4. Rules change while transactions are open. A topic that moves takes none of them along: what was written lies on the
   old cluster and is committed or aborted there; the next record for it is refused. A transactional id that moves ends
   its transaction where it began (`end`), and is at its new home from its next identity on (`begin`).
5. Requests of a transaction are not held while topics move: they name no offsets in a log, and holding Produce is
   enough to keep records in order.
6. Where the rule lets transactions span clusters, 1 and 4 hold, and `spanning` says what is different.
"""
