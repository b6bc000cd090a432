"""Control's connections to the real clusters: what is there, what is possible, and what librdkafka thinks of a
configuration.
"""
