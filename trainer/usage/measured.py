"""One measurement of a process and its host."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class GpuUsage(BaseModel):
    """One GPU of a host. None: the driver does not report it."""

    model_config = ConfigDict(extra="forbid")

    index: int
    name: str
    utilisation: float | None = Field(default=None, description="Share of time in which a kernel ran, 0 to 1")
    memory: int = Field(description="Bytes in use")
    memory_total: int
    power: float | None = Field(default=None, description="Watts")


class Usage(BaseModel):
    """Rates are means since the measurement before. Bytes are bytes, rates bytes per second."""

    model_config = ConfigDict(extra="forbid")

    host: str
    pid: int
    cpu: float = Field(description="CPU cores that the process and its descendants used")
    memory: int = Field(description="Resident bytes of the process and its descendants")
    host_cpu: float = Field(description="Share of all cores of the host that were busy, 0 to 1")
    host_cores: int
    host_memory: int
    host_memory_total: int
    received: float | None = Field(default=None, description="Network of the host, without its loopback")
    sent: float | None = None
    disk_read: float | None = None
    disk_written: float | None = None
    disk_used: int | None = Field(default=None, description="Of the file system that holds the data")
    disk_total: int | None = None
    gpus: list[GpuUsage] = []
