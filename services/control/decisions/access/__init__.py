"""Roles of people and programs."""
