"""The formats that become banks and that banks become, by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from .errors import BankError, InputError
from .exporters.writing import Writing
from .importers.assemble import LeftOut, import_content
from .importers.directory import check_regular
from .importers.naming import bank_names
from .importers.reading import Reading, Recording, changed
from .interchange import Content
from .open import open_bank
from .restore import bank_content

Reader = Callable[[Path, Reading], Content]
Writer = Callable[[Content, Path, Writing], None]


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        name: what ``--format`` calls it.
        module: in ``importers`` and ``exporters``.
        suffixes: of files that are taken for it where no format is named; none for directories.
        bits: whether a bank comes back from it with the same bits.
        carries: what of a bank it has a place for.
        options: fields of ``Reading`` that its reader alone looks at.
    """

    name: str
    module: str
    suffixes: tuple[str, ...]
    bits: bool
    carries: str
    options: tuple[str, ...] = ()

    def reader(self) -> Reader:
        """Return the function that reads a file; what it needs is imported now."""
        module = import_module(f".importers.{self.module}", __package__)
        found: Reader = getattr(module, f"read_{self._stem}")
        return found

    def writer(self) -> Writer:
        """Return the function that writes a file."""
        module = import_module(f".exporters.{self.module}", __package__)
        found: Writer = getattr(module, f"write_{self._stem}")
        return found

    @property
    def _stem(self) -> str:
        return self.module.removesuffix("_file")


FORMATS: Final = {
    format_.name: format_
    for format_ in (
        Format("safetensors", "safetensors", (".safetensors",), True, "everything"),
        Format("npz", "npz", (".npz",), True, "everything; BF16 and FP8 as their bits"),
        Format("parquet", "parquet", (".parquet",), True, "everything; BF16 and FP8 as their bits"),
        Format("torch", "torch_file", (".pt", ".pth", ".bin"), True, "everything"),
        Format("csv", "csv_file", (".csv",), True, "everything but NaNs of unusual bits; small"),
        Format("replay", "replay", (".npy", ".json"), False,
               "ids of one path, layer and order of tokens: no input, weight or other key",
               ("layers", "model_layers", "path")),
        Format("sglang", "sglang", (), True, "everything, where a step's rows are together",
               ("layers",)),
        Format("flashinfer-bench", "flashinfer_bench", (), True, "stages hidden and logits",
               ("workloads",)),
    )
}  # fmt: skip


def format_of(path: Path, name: str | None) -> Format:
    """Return the format that a name or a file's suffix tells.

    Raises:
        InputError: no such format, or a suffix that tells none.
    """
    if name is not None:
        if name not in FORMATS:
            raise InputError("format", name, f"one of {', '.join(FORMATS)}", "--format")
        return FORMATS[name]
    for format_ in FORMATS.values():
        if path.suffix.lower() in format_.suffixes:
            return format_
    got = path.suffix or "no suffix"
    raise InputError("file", got, "one whose suffix tells its format, or --format", str(path))


def import_files(
    paths: Sequence[str | Path],
    directory: str | Path,
    *,
    format: str | None = None,
    reading: Reading | None = None,
    recording: Recording | None = None,
    stage: str | None = None,
    drop: Collection[str] = (),
    left_out: LeftOut | None = None,
) -> str:
    """Write the bank that one or more files hold and return its digest.

    Several files are one: rows of one and weights of another, each in its own format.

    Args:
        paths: the files.
        directory: a new or empty directory for the bank.
        format: of the first file, and of others whose suffix tells none; None takes each by its
            suffix.
        reading: names and geometry.
        recording: what no file says.
        stage: where to start, one of ``bank.STAGES``; None takes the first that the tensors allow.
        drop: tensors to leave out.
        left_out: called with the file's names of further tensors that the bank has no place for,
            once it is written, where there are any.

    Raises:
        BankError: anything wrong with a file; names file and field. Nothing is left behind.
        InputError: an unknown format, stage or option.
    """
    if not paths:
        raise InputError("files", "none", "at least one", "import")
    reading = reading or Reading()
    contents = []
    formats = []
    for number, given in enumerate(paths):
        path = Path(given)
        check_regular(path)
        named = format if number == 0 or not _tells(path) else None
        formats.append(format_of(path, named))
        contents.append(bank_names(formats[-1].reader()(path, reading), reading))
    _check_options(formats, reading)
    return import_content(
        contents,
        directory,
        reading=reading,
        recording=recording,
        stage=stage,
        drop=drop,
        left_out=left_out,
    )


def _check_options(formats: Sequence[Format], reading: Reading) -> None:
    """Refuse an option that no reader of these formats looks at."""
    special = {option for format_ in FORMATS.values() for option in format_.options}
    unread = special.difference(*(format_.options for format_ in formats))
    for option, spelled in changed(reading, unread).items():
        known = [format_.name for format_ in FORMATS.values() if option in format_.options]
        given = ", ".join(dict.fromkeys(format_.name for format_ in formats))
        expected = f"absent with {given}: it is for {' and '.join(known)}"
        raise InputError(spelled, "given", expected, "import")


def _tells(path: Path) -> bool:
    return any(path.suffix.lower() in format_.suffixes for format_ in FORMATS.values())


def export_bank(
    spec: str | Path, target: str | Path, *, format: str | None = None,
    writing: Writing | None = None,
) -> Format:  # fmt: skip
    """Write a bank as a file (or directory) of another format, which is returned.

    Args:
        spec: the bank, as ``open_bank`` takes it.
        target: a new file, or a new or empty directory.
        format: None takes it by the suffix of ``target``.
        writing: what the writer has to know.

    Raises:
        BankError: the bank has what the format cannot carry, or the target is taken.
        InputError: an unknown format or bank.
    """
    path = Path(target)
    found = format_of(path, format)
    content = bank_content(open_bank(spec))
    if not path.absolute().parent.is_dir():
        raise BankError("directory", str(path.parent), "an existing directory", str(path))
    found.writer()(content, path, writing or Writing())
    return found
