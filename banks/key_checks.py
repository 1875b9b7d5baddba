"""Keys of a bank: each record once, and the records of ranks in the order of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import BankError
from .records import Records
from .schema import STORED_KEYS, BankModel

Array = npt.NDArray[Any]


def check_keys(rows: Records, model: BankModel, where: str) -> None:
    """Refuse a bank that has a record twice.

    Raises:
        BankError: names the first such record.
    """
    if _ascends(rows):
        return
    columns = [rows.column(name, 0, model.rows) for name in STORED_KEYS]
    order = np.lexsort(columns[::-1])
    same = np.ones(model.rows - 1, np.bool_)
    for column in columns:
        same &= column[order[1:]] == column[order[:-1]]
    if same.any():
        record = int(order[1:][same][0])
        got = ", ".join(f"{k} {c[record]}" for k, c in zip(STORED_KEYS, columns, strict=True))
        raise BankError(f"keys[record {record}]", f"{got} twice", "each record once", where)


def _ascends(rows: Records) -> bool:
    """Whether each record's keys are above those of the one before: then none is there twice.

    A batch is held at a time, with the last record of the one before.
    """
    last: list[Array] = []
    for start, stop in rows.spans():
        columns = [rows.column(name, start, stop) for name in STORED_KEYS]
        if last:
            columns = [np.concatenate(pair) for pair in zip(last, columns, strict=True)]
        above = np.zeros(len(columns[0]) - 1, np.bool_)
        equal = ~above
        for column in columns:
            above |= equal & (column[1:] > column[:-1])
            equal &= column[1:] == column[:-1]
        if not above.all():
            return False
        last = [column[-1:] for column in columns]
    return True


def check_rank_keys(rows: Records, ranks: Records, model: BankModel, where: str) -> None:
    """Refuse records of ranks that are not those of the rows, each rank of each row in order.

    Raises:
        BankError: names the first such record.
    """
    count = model.ranks or 1
    for name in STORED_KEYS:
        for start, stop in ranks.spans():
            got = ranks.column(name, start, stop)
            if name == "rank":
                expected = np.arange(start, stop) % count
            else:
                first = start // count
                row = rows.column(name, first, -(-stop // count))
                expected = np.repeat(row, count)[start - first * count :][: stop - start]
            wrong = np.flatnonzero(got != expected)
            if len(wrong):
                record = int(wrong[0])
                what = f"{name}[record {start + record}]"
                raise BankError(what, got[record], expected[record], where)
