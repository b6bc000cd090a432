"""Versions that Kafka 4.0 removed, translated to the oldest that it kept, and their answers back.

There is one module for each kind of API. `Handler.older` in the table says which versions go here.

A translator decodes the request, and lets today's handler work on it in a version that every cluster supports. Then the
translator gives the answer the old form. So the rules, moves and errors of today's handler hold for old clients too.
"""
