"""The walks over Produce and Fetch: one call finds where all lies that anybody wants to know.

Theory of operation
1. One source for two. As they stand here the modules run as Python. Where there is a C compiler, the build makes a
   copy of them, `compiled`, with the C types of the `.pxd` file beside each; `running` takes one of the two. So in here
   whole numbers fit 64 bits, and bytes are read through `octets` alone.
2. `octets` looks at no bounds: in C there is nobody else who would. Each read stands behind a comparison with `end`,
   and that is compared with the buffer when a walk begins. What can't be is a `WireError` before it is walked.
3. Notes are made empty and filled in, which costs the least in both. Nobody changes them afterwards.
"""
