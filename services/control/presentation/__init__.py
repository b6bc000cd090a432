"""Decisions and findings as sentences for people."""
