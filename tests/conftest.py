"""Settings of every test: no silent rank promotion, full float32 products, 64 bits where asked for, no cache."""

import os

import jax

os.environ["MHA_JAX_CACHE"] = ""  # nothing of the user's machine is read or left there

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_enable_x64", os.environ.get("MHA_JAX_TEST_FLOAT64", "0") == "1")
