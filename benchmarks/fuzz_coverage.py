"""Fuzz one parser guided by its coverage: ``fuzz_coverage.py READER --runs 20000`` (extra fuzz).

READER is one that reads a single file: case, policy, claims, safetensors, spec, signature. atheris
counts the lines of neartie that an input reaches; what reaches new ones is changed further, by the
same mutations as in ``fuzz.py``. An input that the reader fails on stops the run, and is kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

with atheris.instrument_imports(include=["neartie"]):
    from fuzzing import corpus
    from fuzzing.outcome import WrongPass
    from fuzzing.readers import READERS

    from neartie.banks.errors import InputError


def main() -> None:
    """Fuzz; libFuzzer prints its figures and ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", choices=[n for n in READERS if n not in ("bank", "evidence")])
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--keep", type=Path, default=Path())
    given = parser.parse_args()
    reader = READERS[given.reader]()
    place = Path(tempfile.mkdtemp()) / "input"
    start = Path(tempfile.mkdtemp())
    kept = [files for _, files in corpus.load(reader)]
    for number, files in enumerate([*reader.seeds(), *kept]):
        (start / str(number)).write_bytes(files[reader.file])

    def one(data: bytes) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                reader.read({reader.file: data}, place)
        except InputError:
            return
        except WrongPass as error:
            raise RuntimeError(f"wrong pass: {error}") from error

    def changed(data: bytes, most: int, seed: int) -> bytes:
        return reader.mutate({reader.file: data}, random.Random(seed))[reader.file][:most]

    keep = f"-artifact_prefix={given.keep}/"
    options = [f"-runs={given.runs}", "-max_len=100000", "-timeout=30", "-rss_limit_mb=4096", keep]
    atheris.Setup([sys.argv[0], *options, str(start)], one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
