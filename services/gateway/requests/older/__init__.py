"""Versions that Kafka 4.0 gave up, translated to the oldest that it kept, and their answers back. One module for each
kind of API; `Handler.older` in the table says which versions go here.

A translator decodes the request, lets today's handler work on it in a version that every cluster speaks, and gives the
answer the old form. So everything that today's handler does about rules, moves and errors holds for old clients too.
"""
