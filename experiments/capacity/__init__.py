"""The capacity phase transition of the key-query channel."""
