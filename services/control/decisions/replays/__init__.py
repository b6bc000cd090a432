"""Replays, copies and profiles."""
