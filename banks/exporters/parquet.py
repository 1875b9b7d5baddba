"""A bank as a directory of Parquet files: rows.parquet, and a file for each weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..arrow_tables import dtype_name, key_field, tensor_field, to_batch
from ..atomic import new_directory
from ..importers.directory import ROWS_STEM
from ..interchange import HEADER_KEY, Column, Content, steps
from .writing import Writing, header_text, row_columns, weight_columns


def write_parquet(content: Content, target: Path, writing: Writing) -> None:
    """Write rows and weights; the header is in the metadata of the rows.

    BF16 and FP8 are their bits, as unsigned integers, with the dtype in the field's metadata.

    Raises:
        BankError: the directory is taken, or it cannot be written.
    """
    del writing
    with new_directory(target, "directory of Parquet files") as partial:
        metadata = {HEADER_KEY: header_text(content)}
        _write(partial / f"{ROWS_STEM}.parquet", row_columns(content), metadata, content.where)
        for name, column in weight_columns(content).items():
            _write(partial / f"{name}.parquet", {name: column}, {}, content.where)


def _write(path: Path, columns: dict[str, Column], metadata: dict[str, str], where: str) -> None:
    fields = [_field(name, column, where) for name, column in columns.items()]
    schema = pa.schema(fields, metadata=metadata)
    rows = max(column.shape[0] for column in columns.values())
    # Bits of numbers repeat too seldom for a dictionary.
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for start, stop in steps(rows):
            values: dict[str, Any] = {n: c.read(start, stop) for n, c in columns.items()}
            writer.write_batch(to_batch(schema, values))


def _field(name: str, column: Column, where: str) -> pa.Field:
    dtype = dtype_name(np.empty(0, column.dtype), name, where)
    if len(column.shape) == 1 and dtype in ("int32", "int64", "float32", "float64"):
        field = key_field(name, dtype)
        return field.with_metadata({"dtype": dtype})
    return tensor_field(name, dtype, column.shape[1:] or (1,))
