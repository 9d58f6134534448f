"""Command line of the experiments: ``python -m experiments --help``."""

from __future__ import annotations

import os
import sys
import threading

if __name__ in ("__main__", "__mp_main__"):
    # One BLAS thread: units run side by side, and OpenBLAS threads that compete for cores are many times slower.
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

if __name__ == "__main__":
    try:
        from experiments.cli import main

        _status = main(sys.argv[1:])
    except KeyboardInterrupt:  # while it was still importing or finishing; a run itself answers its own
        print("interrupted", file=sys.stderr)
        _status = 130
    if _status == 130 or any(thread.name == "experiments-batch" for thread in threading.enumerate()):
        # A unit that is computed in this process cannot be stopped, and need not: it is not waited for. An interpreter
        # that ended around it would abort, with another status.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status)
    sys.exit(_status)
