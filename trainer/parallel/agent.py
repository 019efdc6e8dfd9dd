"""torchrun, in a process that ends with the one that started it: `python -m trainer.parallel.agent ARGUMENTS OF TORCHRUN`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from torch.distributed.run import main

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1:  # it died before we asked for the signal
        sys.exit(1)
    main(sys.argv[1:])
