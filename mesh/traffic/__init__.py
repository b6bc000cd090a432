"""The traffic of gateways and sidecars: counted (`counting`), and reported to the home cluster (`reporter`).

`counting` knows no I/O; code that counts imports nothing else.
"""
