"""The identity of callers: tokens, the keys that sign them, and their scopes; and the listener's certificate."""
