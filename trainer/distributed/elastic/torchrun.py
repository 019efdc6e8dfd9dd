"""torchrun that ends with its parent process: `python -m trainer.distributed.elastic.torchrun TORCHRUN_ARGUMENTS`."""

from __future__ import annotations

import sys

from torch.distributed.run import main

from trainer.distributed.elastic.parent import end_with_parent, hold_ranks_lock
from trainer.distributed.elastic.rendezvous import register

if __name__ == "__main__":
    end_with_parent()
    hold_ranks_lock()
    register()
    main(sys.argv[1:])
