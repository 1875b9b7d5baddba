"""Measured constants of the cost model.

Times are of one thread, its own CPU time, made by ``benchmarks/cost_rates.py`` (``--write`` puts
them in here) on a machine with 2 cores of a Xeon server that others used too; two runs differed by
up to a third (one of them, with its load, is ``benchmarks/results/cost_rates.json``). Another
machine is faster or slower by its clock. Starts are from there too, on the clock; memory is from
``benchmarks/gate.py`` and ``benchmarks/engines.py``, what is of the GPU from 1e9 rows on an H200
with 16 cores.
"""

from __future__ import annotations

from typing import Final

NORMAL_NS_PER_LOGIT: Final = 1.44
RESAMPLE_NS_PER_PRODUCT: Final = 0.072
"""Two hidden rows mixed and multiplied exactly by the router weight."""
HIDDEN_NS_PER_PRODUCT: Final = 0.086
"""The exact product of hidden rows with the router weight."""
GENERATED_NS_PER_HIDDEN: Final = 11.7
READ_NS_PER_BYTE: Final = 0.14
"""From the page cache; a disk or a network is slower."""

SELECT_NS_PER_LOGIT: Final = 1.75
COUNT_NS_PER_ROW: Final = 1180.0
REFERENCE_NS_PER_LOGIT: Final = 57.0
"""Of a row that the reference checks, in the sample or because it differs."""
RECORDED_NS_PER_SLOT: Final = 22.6
SHARD_SECONDS: Final = 0.0012
"""Of a shard besides its rows: written, read twice, merged, by the one driver."""

START_SECONDS: Final = 3.9
"""Libraries loaded, loops compiled or loaded, worker processes started."""
RAY_START_SECONDS: Final = 5.0
"""More than that where a Ray cluster is started."""

DEVICE_NS_PER_LOGIT: Final = 0.068
"""Both selects on an H200, of rows made there."""
DEVICE_START_SECONDS: Final = 8.0

AUDIT_WIDTH_NS_PER_LOGIT: Final = 29.5
"""Both paths at one width, compared: rows that start at the logits."""
AUDIT_WIDTH_NS_PER_ROW: Final = 170_000.0
AUDIT_WIDTH_NS_PER_PRODUCT: Final = 0.359
"""The same for rows that start before them, by products of both projections."""
AUDIT_JUDGE_NS_PER_LOGIT: Final = 51.6
"""The reference and all that is done once whatever the widths: rows that start at the logits."""
AUDIT_JUDGE_NS_PER_PRODUCT: Final = 0.254
"""The same for rows that start before them; nothing is left for a row's own share."""

PROCESS_BYTES: Final = 280 << 20
"""A process with its libraries and loops; those of one machine share a third of it."""
RAY_BYTES: Final = 800 << 20
"""Ray's own processes on the driver's machine, shared pages counted in each."""
CERTIFICATE_BYTES: Final = 3000
"""One certificate as the driver holds it."""
SHARD_FILE_BYTES: Final = 6000
"""A finished shard's file without certificates."""
AUDIT_SHARD_BYTES: Final = 150_000
"""A finished shard's file of an audit without certificates: 56 to 380 kB were seen."""
