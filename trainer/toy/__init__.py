"""The toy policy and its data: a 0.9 M-parameter Qwen3 that learns the procedural tasks on a CPU within minutes.

The product treats it as any other policy. Nothing outside this folder depends on its size, vocabulary or tasks.
"""
