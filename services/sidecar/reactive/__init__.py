"""The reactive consumer: the sidecar reads by itself and posts batches to the backend.

A thread has the Kafka client (`consumer`), the event loop has the records (`flow`, `lanes`) and what becomes of them
(`courier`); `reactive` is all of it as one instance that operators know.
"""
