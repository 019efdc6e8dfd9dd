"""What processes of tests import before they are forked. Nothing here opens a connection or starts a thread."""

import tests.distributed.worlds
import tests.trainer.inference.vllm_double
import tests.trainer.orchestrator.victim  # noqa: F401
import trainer.inference.embedded.serving.server
import trainer.inference.router.server
import trainer.inference.vllm.server  # noqa: F401
from trainer.weights.codec import prepare
from trainer.weights.codec.words import FORMATS

for name in ("float32", "bfloat16"):
    prepare(FORMATS[name])
