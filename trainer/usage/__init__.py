"""CPU, memory, network, disk and GPU use of a process and its host, as every worker and inference server reports it.

measured.py  the types, without any import of ours
sampler.py   measures by psutil, between two calls
nvidia.py    what `nvidia-smi` says of the GPUs
"""

from trainer.usage.measured import GpuUsage, Usage
from trainer.usage.sampler import SAMPLE_SECONDS, BackgroundSampler, Sampler

__all__ = ["SAMPLE_SECONDS", "BackgroundSampler", "GpuUsage", "Sampler", "Usage"]
