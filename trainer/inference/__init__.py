"""Inference engines behind one contract: the embedded engine, vLLM, a router over replicas, and their clients."""
