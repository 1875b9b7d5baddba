"""The matrix products of the device paths: torch's calls into cuBLAS, and the flags around them.

Latent pieces are ``torch.mm`` of BF16 operands with BF16 output: cuBLAS accumulates in FP32 and
rounds once. Router logits are ``torch.mm(..., out_dtype=torch.float32)`` of BF16 operands, as the
expert-sharded gate of the sign-off's runtime calls it, or ``torch.mm`` of FP32 operands with TF32
off, as Hugging Face does. cuBLAS picks its kernel by the shape, and so the order of its sums: the
same row may have other bits at another width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .lang import INTERPRETED


@contextmanager
def product_flags(reduced: bool) -> Iterator[None]:
    """Set torch's process-wide product flags for a while: TF32 off, split-K sums as told.

    Args:
        reduced: whether cuBLAS may add the parts of a split-K product of BF16 operands in BF16
            (``allow_bf16_reduced_precision_reduction``, which torch has on by default).
    """
    import torch

    matmul: Any = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction, matmul.fp32_precision
    matmul.allow_bf16_reduced_precision_reduction = reduced
    matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction, matmul.fp32_precision = before


def latent_product(x: Any, weight: Any, out: Any) -> None:
    """Write x [row, k] . weight [column, k] BF16 into out [row, column] BF16."""
    import torch

    torch.mm(x, weight.t(), out=out)


def router_product(x: Any, weight: Any, out: Any) -> None:
    """Write x [row, k] . weight [expert, k], both BF16 or both FP32, into out float32."""
    import torch

    if x.dtype == torch.float32:
        torch.mm(x, weight.t(), out=out)
    elif INTERPRETED:
        # On a CPU torch has no product of two dtypes; those of BF16 values are exact in FP32.
        torch.mm(x.float(), weight.float().t(), out=out)
    else:
        torch.mm(x, weight.t(), out_dtype=torch.float32, out=out)
