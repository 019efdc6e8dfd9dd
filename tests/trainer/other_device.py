"""A second device on a machine that has none: tensors on it compute as the CPU does, and mix with no tensor of the CPU.

A tensor there says that its device is `meta`, the one type besides `cpu` for which autograd needs no driver, and wraps a
tensor of the CPU that nothing else sees. An operation that is given tensors of both, numpy, or a compiled loop fails as it would
with a GPU; a tensor without dimensions may come along where a GPU lets it. Values are real, so that a step here can be compared
with a step on the CPU. What this does not show: kernels, streams, memory and speed of a real device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
CASTED = (functional.linear, functional.scaled_dot_product_attention, torch.matmul, torch.mm, torch.bmm, Tensor.matmul,
          Tensor.__matmul__)  # fmt: skip
"""What autocast computes in half precision: the few that policies use of its list."""
MOVES = ("_to_copy", "copy_", "to")  # the last only where torch takes operations whole, in inference mode


class Elsewhere(Tensor):
    """A tensor on the other device."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> Elsewhere:
        made: Elsewhere = Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            layout=here.layout,
            device=DEVICE,
        )
        made.here = here
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.here})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(function, args, kwargs or {})


class _Made(TorchDispatchMode):
    """Makes new tensors, and moves those of the CPU, to where they are asked for."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(function, args, kwargs or {})


class _Above(TorchFunctionMode):
    """What is above autograd: autocast, which knows no device of this type, and tensors from and to Python's numbers."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.tensor and (device := (kwargs or {}).get("device")) == DEVICE:
            return torch.tensor(*args, **(kwargs | {"device": "cpu"})).to(device)
        if function is Tensor.tolist and isinstance(args[0], Elsewhere):
            return args[0].cpu().tolist()
        if function in CASTED and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map(_half, (args, kwargs))
        return function(*args, **(kwargs or {}))


def _half(value: Any) -> Any:
    floats = isinstance(value, Elsewhere) and value.dtype == torch.float32
    return value.to(torch.get_autocast_dtype("cpu")) if floats else value


def _compute(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if not torch.is_inference_mode_enabled():
        return _computed(function, args, kwargs)
    with (
        torch.inference_mode(False),
        torch.no_grad(),
    ):  # views of older tensors want a count of changes, which is off there
        return _computed(function, args, kwargs)


def _computed(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    there = [value for value in given if isinstance(value, Elsewhere)]
    name = function._schema.name.split("::")[1]
    if any(value.device == DEVICE and not isinstance(value, Elsewhere) for value in given):
        raise RuntimeError(
            f"{function}: a tensor of torch's own `{DEVICE.type}`, which has no values; it was made past this double"
        )
    if there and name not in MOVES:
        # A number of the CPU may come along, and so may its places in a tensor elsewhere; not so into fused kernels.
        alone = "_fused" in name
        wrong = [one for one in given if not isinstance(one, Elsewhere) and (one.ndim or alone)]
        if wrong and not (name.startswith(("index", "_index")) and isinstance(args[0], Elsewhere)):
            raise RuntimeError(f"{function}: tensors elsewhere, and one of the CPU of shape {tuple(wrong[0].shape)}")
    asked = kwargs.get("device", next((value for value in args if isinstance(value, torch.device)), None))
    plain_args, plain_kwargs = tree_map(_plain, (args, kwargs))
    if name == "histc":  # of whole numbers, which only GPUs count
        out = function(plain_args[0].float(), *plain_args[1:], **plain_kwargs).to(plain_args[0].dtype)
    else:
        out = function(*plain_args, **plain_kwargs)
    if not (torch.device(asked).type == DEVICE.type if asked is not None else _lands(name, args, there)):
        return out
    known = {id(value.here): value for value in there}  # what works in place gives back what it was given
    return tree_map(
        lambda value: (
            (known[id(value)] if id(value) in known else Elsewhere(value)) if isinstance(value, Tensor) else value
        ),
        out,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == DEVICE.type:
        return torch.device("cpu")
    return value.here if isinstance(value, Elsewhere) else value


def _lands(name: str, args: Any, there: list[Elsewhere]) -> bool:
    """Whether the outcome lies elsewhere."""
    return isinstance(args[0], Elsewhere) if name == "copy_" else bool(there)


@contextmanager
def within() -> Iterator[None]:
    """In each thread more that computes while the device exists: torch's modes are a thread's own."""
    with _Made(), _Above():
        yield


@contextmanager
def other_device() -> Iterator[torch.device]:
    """The device, while it exists."""
    autocast, enabled, kind = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # a moved parameter stays the same object
    name = DEVICE.type
    try:
        with (
            patch("torch.autocast", lambda device, *a, **k: autocast("cpu" if device == name else device, *a, **k)),
            patch("torch.is_autocast_enabled", lambda device: enabled("cpu" if device == name else device)),
            patch("torch.get_autocast_dtype", lambda device: kind("cpu" if device == name else device)),
            patch("torch.optim.optimizer._get_fused_kernels_supported_devices", lambda: ["cpu", name]),
            within(),
        ):
            yield DEVICE
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swaps)
