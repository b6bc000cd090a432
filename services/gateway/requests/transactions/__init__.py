"""Transactions over any clusters: all of a transaction is committed, or nothing of it.

Theory of operation
1. InitProducerId comes before any topic is known, so the home of a transactional id is decided by its name alone: by
   the rule that matches it, else it is the mesh's home cluster (`home`). Every gateway comes to the same answer.
2. The client goes by the identity that home's coordinator gives it, and home alone says which producer is the rightful
   one. What a transaction touches decides which other clusters have a part of it (`parts`), and home keeps the list of
   them, as partitions of a topic of the mesh (`registry`).
3. A commit over several clusters is decided at home: home's own commit makes a record valid that names all parts
   (`decisions`), and any gateway carries it out (`end`, `begin`, `sweep`). What a gateway remembers saves questions:
   any other one can go on in its place.
4. Clusters before Kafka 3.0 can't say what they know of a transactional id. They take no part in transactions of other
   clusters: what is on them is refused with an error that ends the transaction and lets the producer go on.
5. Rules change while transactions are open. A topic that moves takes none of them along: what was written lies on the
   old cluster and is committed or aborted there; the next record for it makes a part on the new one. A transactional id
   that moves ends its transaction where it began (`end`), and is at its new home from its next identity on (`begin`).
6. Requests of a transaction are not held while topics move: they name no offsets in a log, and holding Produce is
   enough to keep records in order.
"""
