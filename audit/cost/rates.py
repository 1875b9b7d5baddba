"""Measured constants of the cost model.

Times are of one thread, its own CPU time, made by ``benchmarks/cost_rates.py`` (``--write`` puts
them in here) on a quiet machine with 2 AMD EPYC cores (``benchmarks/results/cost_rates.json``).
Gates then took 1.0 to 1.2 times what is expected (``benchmarks/results/engines.json``). Another
machine is faster or slower by its clock. Starts are from there too, on the clock; memory is from
``benchmarks/gate.py`` and ``benchmarks/engines.py``, what is of the GPU from 1e9 rows on an H200
with 16 cores.
"""

from __future__ import annotations

from typing import Final

NORMAL_NS_PER_LOGIT: Final = 1.5
RESAMPLE_NS_PER_PRODUCT: Final = 0.0786
"""Two hidden rows mixed and multiplied exactly by the router weight."""
HIDDEN_NS_PER_PRODUCT: Final = 0.0828
"""The exact product of hidden rows with the router weight."""
GENERATED_NS_PER_HIDDEN: Final = 11.4
READ_NS_PER_BYTE: Final = 0.133
"""From the page cache; a disk or a network is slower."""

SELECT_NS_PER_LOGIT: Final = 1.1
COUNT_NS_PER_ROW: Final = 1_430.0
REFERENCE_NS_PER_LOGIT: Final = 67.3
"""Of a row that the reference checks, in the sample or because it differs."""
RECORDED_NS_PER_SLOT: Final = 21.8
SHARD_SECONDS: Final = 0.000805
"""Of a shard besides its rows: written, read twice, merged, by the one driver."""

START_SECONDS: Final = 2.5
"""Libraries loaded, loops compiled or loaded, worker processes started."""
RAY_START_SECONDS: Final = 5.35
"""More than that where a Ray cluster is started."""

DEVICE_NS_PER_LOGIT: Final = 0.068
"""Both selects on an H200, of rows made there."""
DEVICE_START_SECONDS: Final = 8.0

AUDIT_WIDTH_NS_PER_LOGIT: Final = 31.5
"""Both paths at one width, compared: rows that start at the logits."""
AUDIT_WIDTH_NS_PER_ROW: Final = 182_000.0
AUDIT_WIDTH_NS_PER_PRODUCT: Final = 0.331
"""The same for rows that start before them, by products of both projections."""
AUDIT_JUDGE_NS_PER_LOGIT: Final = 53.6
"""The reference and all that is done once whatever the widths: rows that start at the logits."""
AUDIT_JUDGE_NS_PER_PRODUCT: Final = 0.275
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
