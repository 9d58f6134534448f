"""Trainers of key-query channels."""
