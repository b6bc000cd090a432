"""Judges records: reads what expressions ask about, applies filters and changes. No record is written here."""
