"""Attention of one head of one example, and its mapping over heads and batch. Private: use `mha_jax`."""
