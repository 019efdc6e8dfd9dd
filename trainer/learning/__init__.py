"""One optimizer step: packing, forward pass, loss, corrections, optimizers and metrics."""
