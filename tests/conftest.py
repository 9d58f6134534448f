"""Settings of every test: no silent rank promotion, full float32 products, 64 bits where asked for."""

import os
import signal

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_enable_x64", os.environ.get("MHA_JAX_TEST_FLOAT64", "0") == "1")

# A shell ignores interrupts for what it runs in the background, and processes inherit that: tests that interrupt a
# process of theirs would wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
