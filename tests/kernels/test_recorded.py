"""Recorded outputs as a path: copied as they are, or refused with the reason."""

from dataclasses import replace

import numpy as np
import pytest

from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.contract import FrontWeights, Launch, Recorded, Routed
from neartie.kernels.recorded import NotRecorded
from neartie.kernels.registry import make_path

LAUNCH = Launch(
    Geometry("small", 64, 0, 48, 4),
    ScoringRule(),
    ranks=2,
    width=4,
    weights=FrontWeights(None, np.zeros(48, np.float32)),
    row_index=np.arange(12, dtype=np.int64),
)


def _recorded(width: int | None, *, weights: bool = True) -> Launch:
    ids = np.arange(48, dtype=np.int32).reshape(12, 4)
    values = np.full((12, 4), 0.25, np.float32)
    found = Recorded(ids, values if weights else None, width)
    return replace(LAUNCH, recorded={"gpu": found})


def test_recorded_outputs_are_copied_to_every_rank() -> None:
    path = make_path("recorded")
    assert path.outputs == ("ids", "weights")
    launch = _recorded(4)
    out = Routed(np.zeros((2, 12, 4), np.int32), np.zeros((2, 12, 4), np.float32))
    path.run(launch, out)
    assert (out.ids == launch.recorded["gpu"].ids).all()
    assert (out.weights == 0.25).all()


@pytest.mark.parametrize(
    ("launch", "name", "message"),
    [
        (_recorded(20), "gpu", "width=4, but should be the recorded 20"),
        (_recorded(4), "forward", "name=forward, but should be one of gpu"),
        (_recorded(4, weights=False), "gpu", "weights=nothing"),
        (LAUNCH, "gpu", "name=gpu, but should be one of a bank with recorded outputs"),
    ],
)
def test_not_recorded(launch: Launch, name: str, message: str) -> None:
    with pytest.raises(NotRecorded, match=message):
        make_path(f"recorded:name={name}").check(launch)
    make_path("recorded").check(_recorded(None))
