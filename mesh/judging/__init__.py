"""Judges records: reads what expressions ask about, applies filters and changes. No record is read or written here.

Routers and the pipeline say by it which records they copy, and what of them is changed on the way.
"""
