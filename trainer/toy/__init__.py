"""The toy policy as a preset: a 0.9 M-parameter Qwen3 that learns the procedural tasks on a CPU within minutes.

The product treats it as any other policy. Nothing in the core depends on its size, vocabulary or tasks.
"""
