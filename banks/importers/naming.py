"""From the names that a file gives its tensors to those of a bank."""

from __future__ import annotations

from dataclasses import replace

from ..errors import BankError
from ..interchange import Content
from .reading import SHARDED, TENSOR_NAMES, Reading


def bank_names(content: Content, reading: Reading) -> Content:
    """Return content whose known tensors have their bank's names; messages still use the file's.

    A file that was exported from a bank has them already.

    Raises:
        BankError: a name that the user gave is of no tensor, or of a bank's tensor twice.
    """
    if content.header is not None:
        return content
    columns = dict(content.columns)
    labels = dict(content.labels)
    for name in dict.fromkeys([*reading.names, *TENSOR_NAMES]):
        theirs = next((given for given in reading.candidates(name) if given in columns), None)
        if theirs is None:
            continue
        if theirs != name and name in columns:
            expected = f"another name than {name}, which is there too"
            raise BankError(f"tensor {theirs}", name, expected, content.where)
        columns[name] = columns.pop(theirs)
        labels[name] = theirs
    return replace(content, columns=columns, labels=labels)


def check_names(content: Content, reading: Reading) -> None:
    """Refuse a name that the user gave and that no file has.

    Raises:
        BankError: names the first.
    """
    for name, theirs in reading.names.items():
        there = name in content.columns or SHARDED.get(name) in content.columns
        # A tensor that has the bank's own name is not the one that was asked for.
        if not there or content.label(name) != theirs:
            raise BankError(f"tensor {theirs}", "nothing", "present", content.where)
