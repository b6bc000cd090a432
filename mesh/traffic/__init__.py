"""What flows through gateways and sidecars: counted (`counting`), and told to the home cluster (`reporter`).

`counting` knows no I/O, and is all that whoever counts imports.
"""
