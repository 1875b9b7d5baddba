"""The time that a model spends in its forward."""

from __future__ import annotations

import time
from typing import Any

import torch


class ForwardTimer:
    """Seconds in a module's forward; None where it was never seen to be called eagerly."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._began = 0.0
        self._handles: list[Any] = []

    def attach(self, model: torch.nn.Module) -> None:
        """Listen to the calls of a module."""
        self._handles = [
            model.register_forward_pre_hook(self._before, prepend=True),
            model.register_forward_hook(self._after),
        ]

    def _before(self, module: torch.nn.Module, args: Any) -> None:
        # A compiler would read the clock once.
        if not torch.compiler.is_compiling():
            self._began = time.perf_counter()

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            self.seconds = (self.seconds or 0.0) + time.perf_counter() - self._began

    def detach(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
