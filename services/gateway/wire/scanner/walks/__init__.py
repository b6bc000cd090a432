"""The walks over Produce and Fetch: one call finds the offsets of all fields that the gateway needs.

Theory of operation
1. One source for Python and C. The modules run as Python as they are. If there is a C compiler, the build makes a copy
   of them, `compiled`, with the C types of the `.pxd` file beside each. `running` takes one of the two. So in here
   whole numbers fit 64 bits, and bytes are read through `octets` alone.
2. `octets` checks no bounds, and in C nothing else does. Each read follows a comparison with `end`, and `end` is
   compared with the buffer when a walk begins. An impossible value raises `WireError` before it is walked.
3. Notes are made empty and filled in, which costs the least in both. Nothing changes them afterwards.
"""
