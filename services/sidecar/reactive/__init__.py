"""The reactive consumer: the sidecar reads by itself and posts batches to the backend.

A thread has the Kafka client (`polling_consumer`). The event loop has the records (`flow`, `lanes`) and their outcomes
(`batch_processor`). `reactive_consumer` shows all of that as one instance that operators know.
"""
