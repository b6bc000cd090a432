"""Moves of topics with their records: from the copy to the switch."""
