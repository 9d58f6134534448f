"""Command line of the experiments: ``python -m experiments --help``."""

from __future__ import annotations

import os
import sys

if __name__ in ("__main__", "__mp_main__"):
    # One BLAS thread: units run side by side, and OpenBLAS threads that compete for cores are many times slower.
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

if __name__ == "__main__":
    from experiments.cli import main

    sys.exit(main(sys.argv[1:]))
