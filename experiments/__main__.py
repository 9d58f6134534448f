"""Command line of the experiments: ``python -m experiments --help``."""

from __future__ import annotations

import os
import sys
import threading
import time

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
    # Threads that wait for workers end with them, and what these shared is then tidied up. A unit that is computed in
    # this process cannot be stopped, and need not: it is not waited for. An interpreter that ended around it would
    # abort, with another status.
    _deadline = time.monotonic() + 1.0
    _batches = [thread for thread in threading.enumerate() if thread.name == "experiments-batch"]
    for _thread in _batches:
        _thread.join(max(0.0, _deadline - time.monotonic()))
    if any(_thread.is_alive() for _thread in _batches):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status)
    sys.exit(_status)
