"""Copies records from topic to topic, each exactly once: plans, checks, tasks, progress."""
