"""The adapters by name, each with its options, as the registry lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ..contract import Path
from ..options import Option
from . import flashinfer_deepseek as deepseek
from . import flashinfer_kimi_topk16 as topk16
from . import flashinfer_routing as routing
from . import flashinfer_topk as topk
from . import torch_topk as torch


class Adapter(NamedTuple):
    """An adapter's factory (options -> path) and its options."""

    factory: Callable[[Mapping[str, str]], Path]
    options: Mapping[str, Option]


ADAPTERS: Final[dict[str, Adapter]] = {
    "torch_topk": Adapter(torch.torch_topk, torch.OPTIONS),
    "flashinfer_topk": Adapter(topk.flashinfer_topk, topk.OPTIONS),
    "flashinfer_deepseek": Adapter(deepseek.flashinfer_deepseek, deepseek.OPTIONS),
    "flashinfer_trtllm_routing": Adapter(routing.flashinfer_trtllm_routing, routing.TRTLLM_OPTIONS),
    "flashinfer_kimi_k3": Adapter(routing.flashinfer_kimi_k3, routing.KIMI_K3_OPTIONS),
    "flashinfer_kimi_topk16": Adapter(topk16.flashinfer_kimi_topk16, topk16.OPTIONS),
}
"""Each imports its library only when it is asked whether it can run, or runs."""
