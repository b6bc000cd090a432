"""Groups of all kinds (classic, consumer, share, streams): their homes, members and offsets."""
