"""Protection of values by rule: which fields are encrypted or masked, who reads them, and how this is done. No I/O.

Control decides by it which rules are possible. Gateways protect and reveal records by it.
"""
