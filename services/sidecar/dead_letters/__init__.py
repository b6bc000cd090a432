"""Dead letters: records that a backend could not process, with the reason.

This package builds dead letters and reads them for operators. The packages `reactive`, `streams`, `jobs` and `api`
produce them to Kafka.
"""
