"""What the kernels ask of their arguments, checked on the host: a kernel itself can only read or write the wrong place.

Alignment is asked for because the compiler relies on it: strides and pointers divisible by 16 become 16-byte loads,
others become loads of 2 bytes, three times the registers, and spills.
"""

from __future__ import annotations

import torch

from kernels.errors import KernelError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HEAD_DIMS = tuple(range(16, 257, 16))
BLOCK_SIZES = range(1, 257)
ALIGNMENT = 16
"""Bytes a pointer is a multiple of, and elements a stride is a multiple of."""


def require_shape(name: str, tensor: torch.Tensor, shape: tuple[int | None, ...]) -> None:
    """Raise `KernelError` unless the tensor has this shape; None stands for any size."""
    fits = tensor.ndim == len(shape) and all(b in (None, a) for a, b in zip(tensor.shape, shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise KernelError(f"{name} has shape {list(tensor.shape)}, [{wanted}] is needed")


def require_aligned(name: str, tensor: torch.Tensor) -> None:
    """Raise `KernelError` unless the last dimension is dense and all else a multiple of 16, as the compiler assumes."""
    if tensor.stride(-1) != 1:
        raise KernelError(f"the last dimension of {name} must be dense: call .contiguous()")
    if tensor.data_ptr() % ALIGNMENT:
        raise KernelError(f"{name} must begin at a multiple of {ALIGNMENT} bytes: copy it with .clone()")
    for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True):
        if size > 1 and stride % ALIGNMENT:
            raise KernelError(
                f"{name} has strides {tuple(tensor.stride())}: all but the last must be multiples of {ALIGNMENT} "
                "elements, or loads fall to two bytes; copy it with .contiguous()"
            )


def require_heads(name: str, tensor: torch.Tensor) -> None:
    """Raise `KernelError` unless type and head dimension (the last) are ones the kernels are made for."""
    if tensor.dtype not in DTYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise KernelError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}: the kernels know {known}")
    if tensor.shape[-1] not in HEAD_DIMS:
        raise KernelError(f"{name} has head_dim {tensor.shape[-1]}: the kernels know multiples of 16 from 16 to 256")


def require_pool(keys: torch.Tensor, values: torch.Tensor) -> None:
    """Raise `KernelError` unless keys and values are a usable pool, [blocks, block_size, kv_heads, head_dim] each."""
    require_shape("keys", keys, (None, None, None, None))
    require_heads("keys", keys)
    require_aligned("keys", keys)
    require_aligned("values", values)
    same = keys.shape == values.shape and keys.stride() == values.stride() and keys.dtype == values.dtype
    if not same:
        raise KernelError("keys and values must agree in shape, strides and type")
    if keys.shape[1] not in BLOCK_SIZES:
        raise KernelError(f"block size {keys.shape[1]}: the kernels know 1 to 256")


def require_query(query: torch.Tensor, keys: torch.Tensor) -> None:
    """Raise `KernelError` unless query [rows, heads, head_dim] fits the keys [..., kv_heads, head_dim]."""
    require_shape("query", query, (None, None, keys.shape[-1]))
    require_aligned("query", query)
    if query.dtype != keys.dtype:
        raise KernelError(f"query is {query.dtype}, the pool {keys.dtype}: they must agree")
    if query.shape[1] % keys.shape[-2]:
        raise KernelError(f"{query.shape[1]} query heads cannot share {keys.shape[-2]} KV heads evenly")
