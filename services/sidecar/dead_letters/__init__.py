"""Dead letters: records that a backend could not process, with the reason.

The package writes, lists and redelivers them.
"""
