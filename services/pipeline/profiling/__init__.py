"""What the records of a topic are like: formats, fields, and who asks for it. `jobs/profile.py` puts it together."""
