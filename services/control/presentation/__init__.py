"""Decisions as sentences for people, and the reasons of a route."""
