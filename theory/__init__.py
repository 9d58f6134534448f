"""Capacity of the key-query channel: tasks, bounds, trainers, measurement.

Pure functions on arrays; nothing here plots or writes files. Letters as in ``mha_jax``.
Three kinds of statement are kept apart everywhere: a *theorem* holds always, a *prediction* has
no free parameter but is heuristic, an *empirical law* describes what one trainer does.
"""
