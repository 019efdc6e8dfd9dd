"""torchrun, in a process that ends with the one that started it: `python -m trainer.parallel.agent ARGUMENTS OF TORCHRUN`."""

from __future__ import annotations

import sys

from torch.distributed.run import main

from trainer.parallel.parent import end_with_parent
from trainer.parallel.rendezvous import register

if __name__ == "__main__":
    end_with_parent()
    register()
    main(sys.argv[1:])
