"""Engine, codec, kernels and trainer steps, beside their peers."""
