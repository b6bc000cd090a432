"""Jobs: ranges of records are consumed again, by the backend or by a topic, apart from all groups that read them."""
