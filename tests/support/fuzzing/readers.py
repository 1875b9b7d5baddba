"""Every reader that is fuzzed: how it is called, and how its inputs are changed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from neartie.audit.claims.load import load_claims
from neartie.audit.explain.explain import explain_rows
from neartie.audit.policy.load import load_policy
from neartie.audit.policy.show import policy_text
from neartie.banks.files import is_url
from neartie.banks.importers.safetensors import import_safetensors
from neartie.banks.open import GENERATORS
from neartie.banks.spec import parse_spec
from neartie.banks.store import open_directory

from . import seeds
from .mutate import (
    mutate_bytes,
    mutate_document,
    mutate_json,
    mutate_text,
    mutate_toml,
    several,
    to_json,
)
from .outcome import WrongPass

Files = Mapping[str, bytes]
"""An input: content by file name."""


class Reader(ABC):
    """A reader of files that somebody else has written.

    Attributes:
        name: how the command line calls it.
        file: the name of its file, where it has one.
    """

    name: str
    file = "input"

    @abstractmethod
    def seeds(self) -> list[Files]:
        """Right inputs, each accepted."""

    @abstractmethod
    def mutate(self, files: Files, rng: random.Random) -> Files:
        """An input made from another."""

    @abstractmethod
    def read(self, files: Files, place: Path) -> str | None:
        """Read an input in an empty directory; what comes back tells accepted inputs apart.

        Raises:
            InputError: it is refused.
            WrongPass: it is accepted, and must not be.
        """

    def rehash(self, files: Files) -> dict[str, bytes]:
        """The input with every recorded digest made again, as a forger would."""
        return dict(files)


class _OneFile(Reader):
    change: Callable[[bytes, random.Random], bytes]

    def mutate(self, files: Files, rng: random.Random) -> Files:
        return {self.file: type(self).change(files[self.file], rng)}

    def _written(self, files: Files, place: Path) -> Path:
        path = place / self.file
        path.write_bytes(files[self.file])
        return path


class PolicyReader(_OneFile):
    """``--policy FILE``."""

    name, file = "policy", "policy.toml"
    change = staticmethod(mutate_toml)

    def seeds(self) -> list[Files]:
        return [{self.file: text.encode()} for text in seeds.POLICIES]

    def read(self, files: Files, place: Path) -> None:
        policy_text(load_policy(self._written(files, place)))


class ClaimsReader(_OneFile):
    """``--claims FILE``."""

    name, file = "claims", "claims.toml"
    change = staticmethod(mutate_toml)

    def seeds(self) -> list[Files]:
        return [{self.file: text.encode()} for text in seeds.claims()]

    def read(self, files: Files, place: Path) -> None:
        load_claims(self._written(files, place))


class CaseReader(_OneFile):
    """``neartie explain FILE``: the format, and all that is found out about its rows."""

    name, file = "case", "case.json"
    change = staticmethod(mutate_json)

    def seeds(self) -> list[Files]:
        return [{self.file: to_json(case)} for case in seeds.cases()]

    def read(self, files: Files, place: Path) -> str:
        result = explain_rows(self._written(files, place))
        # What is told must be JSON and text, whatever was read.
        json.loads(result.to_json())
        result.text().encode("utf-8", "surrogatepass")
        return str(result.verdict)


class SpecReader(_OneFile):
    """A generator's spec on the command line: parsed, built, and its first row made."""

    name, file = "spec", "spec"

    def seeds(self) -> list[Files]:
        return [{self.file: spec.encode()} for spec in seeds.SPECS]

    @staticmethod
    def change(data: bytes, rng: random.Random) -> bytes:
        text = data.decode("utf-8", "surrogatepass")
        if rng.random() < 0.6:
            text = seeds.other_spec(rng)
        if rng.random() < 0.5:
            text = several(text, mutate_text, rng)
        return str(text).encode("utf-8", "surrogatepass")

    def read(self, files: Files, place: Path) -> str:
        text = files[self.file].decode("utf-8", "surrogatepass")
        # A URL is another reader's matter, and would be asked for.
        if is_url(text.partition("bank=")[2]):
            return "a URL"
        generator, spec = parse_spec(text, GENERATORS)
        bank = generator.build(spec)
        bank.read(0, 1)
        return generator.name


class SafetensorsReader(_OneFile):
    """``neartie bank import FILE DIR``: a refused file leaves nothing behind."""

    name, file = "safetensors", "layer3.safetensors"

    def seeds(self) -> list[Files]:
        return [{self.file: data} for data in seeds.safetensors()]

    @staticmethod
    def change(data: bytes, rng: random.Random) -> bytes:
        kind = rng.random()
        if kind < 0.2:
            return bytes(several(data, mutate_bytes, rng))
        if kind < 0.6:
            return bytes(several(data, seeds.other_tensors, rng))
        size = int.from_bytes(data[:8], "little")
        if size > len(data):
            return mutate_bytes(data, rng)
        head, body = data[8 : 8 + size], data[8 + size :]
        if rng.random() < 0.8:
            head = mutate_json(head, rng)
        else:
            body = mutate_bytes(body, rng)
        return len(head).to_bytes(8, "little") + head + body

    def read(self, files: Files, place: Path) -> None:
        path, bank = self._written(files, place), place / "bank"
        try:
            import_safetensors(path, bank)
        finally:
            left = [entry.name for entry in place.iterdir() if entry != path]
            shutil.rmtree(bank, ignore_errors=True)
            if left and left != ["bank"]:
                raise WrongPass(f"left behind: {left}")


class BankReader(Reader):
    """A bank's directory: opened with every check, and every row read."""

    name = "bank"

    def __init__(self) -> None:
        self._seeds = seeds.banks()
        self._known = {_digest(files["bank.json"]): files for files in self._seeds}

    def seeds(self) -> list[Files]:
        return self._seeds

    def mutate(self, files: Files, rng: random.Random) -> Files:
        changed = dict(files)
        arrow = sorted(name for name in files if name.endswith(".arrow"))
        if rng.random() < 0.5 or not arrow:
            changed["bank.json"] = mutate_json(files["bank.json"], rng)
            return changed
        name = rng.choice(arrow)
        if rng.random() < 0.4:
            changed[name] = seeds.other_arrow(files[name], rng)
        else:
            changed[name] = several(files[name], mutate_bytes, rng)
        if rng.random() < 0.02:
            del changed[name]
        elif rng.random() < 0.85:
            changed["bank.json"] = rehashed_bank(changed, name)
        return changed

    def read(self, files: Files, place: Path) -> str:
        for name, content in files.items():
            (place / name).write_bytes(content)
        bank = open_directory(place, verify=True)
        known = self._known.get(bank.digest)
        if known is not None and dict(known) != dict(files):
            raise WrongPass("other content under a known digest")
        bank.read(0, bank.rows)
        bank.read_outputs(0, bank.rows)
        return bank.stage

    def rehash(self, files: Files) -> dict[str, bytes]:
        made = dict(files)
        for name in sorted(files):
            if name.endswith(".arrow"):
                made["bank.json"] = rehashed_bank(made, name)
        return made


def rehashed_bank(files: Files, name: str) -> bytes:
    """``bank.json`` with the size and digest that a changed file has now."""
    try:
        document = json.loads(files["bank.json"])
        document["files"][name].update(bytes=len(files[name]), sha256=_digest(files[name]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return files["bank.json"]
    return to_json(document)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _all() -> dict[str, Callable[[], Reader]]:
    from .evidence_reader import EvidenceReader
    from .signature_reader import SignatureReader

    readers: tuple[Callable[[], Any], ...] = (
        BankReader, CaseReader, PolicyReader, ClaimsReader, SafetensorsReader, SpecReader,
        EvidenceReader,
        SignatureReader,
    )  # fmt: skip
    return {reader.name: reader for reader in readers}  # type: ignore[attr-defined]


READERS: Final = _all()
"""Readers by name. The place to add one."""

__all__ = ["READERS", "Files", "Reader", "mutate_document"]
