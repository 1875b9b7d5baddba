"""A path of a user's own: a built-in one with its outputs changed. Tests plant faults with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neartie
from neartie.kernels.contract import Declared


def nothing(launch: Any, out: Any) -> None:
    """Change no output."""


class WrappedPath:
    """A built-in path with its outputs changed by ``spoil(launch, out)``.

    Args:
        spoil: changes the outputs in place.
        base: spec of the built-in path.
        name: what it is called; None takes the fault's name.
        batches_launches: whether it is called once for many launches.
    """

    outputs: tuple[str, ...] = ("latent", "logits", "ids", "weights")

    def __init__(
        self,
        spoil: Callable[[Any, Any], None] = nothing,
        base: str = "route",
        *,
        name: str | None = None,
        batches_launches: bool = True,
    ) -> None:
        self.base, self.spoil = neartie.make_path(base), spoil
        self.name = name or f"faulty-{spoil.__name__}"
        self.declared: Declared = self.base.declared
        self.batches_launches = batches_launches

    def unavailable(self) -> None:
        return None

    def check(self, launch: Any) -> None:
        self.base.check(launch)

    def run(self, launch: Any, out: Any) -> None:
        self.base.run(launch, out)
        self.spoil(launch, out)
