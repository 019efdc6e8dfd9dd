"""bf16 kernels for CPUs: attention, RMSNorm and SwiGLU, with numba loops where numba is installed."""
