"""Transactions over any clusters: all of a transaction is committed, or nothing of it.

Theory of operation
1. InitProducerId comes before any topic is known, so the home of a transactional id is decided by its name alone: by
   the rule that matches it, else it is the mesh's home cluster (`home`). Every gateway comes to the same answer.
2. The client uses the identity that home's coordinator gives it, and home alone decides which producer is current.
   Every other cluster that the transaction touches has a part of it (`parts`). Home keeps the list of these clusters,
   as partitions of a topic of the mesh (`registry`).
3. Home decides a commit over several clusters: home's own commit makes a record valid that names all parts
   (`decisions`). Any gateway carries the decision out (`end`, `begin`, `sweep`). The memory of a gateway only saves
   requests: any other gateway can continue in its place.
4. Clusters before Kafka 3.0 can't describe a transactional id. They take no part in transactions of other clusters:
   the gateway refuses their partitions with an error that ends the transaction, and the producer can continue.
5. Rules change while transactions are open. A topic that moves leaves its open transactions behind: the records
   already written stay on the old cluster, which commits or aborts them. The next record for the topic makes a part on
   the new cluster. If a record had no answer before the move, its producer has to abort: both parts could hold it.
   A transactional id that moves ends its transaction on the cluster where that began (`end`). The next identity of the
   id comes from its new home (`begin`).
6. Requests of a transaction are not held while topics move: they name no offsets in a log, and holding Produce is
   enough to keep records in order.
"""
