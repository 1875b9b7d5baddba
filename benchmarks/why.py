"""Which schedules are named from outputs alone, and which orders are recovered: both tables.

    python -P benchmarks/why.py [--rows 48] [--out FILE]

First table: the general path runs with each schedule, at 2, 4, 8 and 16 ranks; from its latent on
every rank, without its name, ``attribute_schedule`` answers. Banks: Gaussian and k3-mini rows at
``mini`` sizes, and partials that cancel, fed to the exchange. An answer is right when it names the
schedule, alone or with others that have the very same bits; what shares its arithmetic or its bits
is printed.

Second table: orders recovered from black boxes: numpy, torch, each schedule through a path's own
exchange, a K-split product, sums in named orders; and every tree of up to 6 terms against brute
force.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neartie.audit.environment import environment
from neartie.audit.launching import front_weights, make_launch, run_path
from neartie.audit.why.confirm import random_terms
from neartie.audit.why.exchange import Exchange, exchange_transport, recover_exchange
from neartie.audit.why.orders import adjacent, chain
from neartie.audit.why.probe import FORMATS
from neartie.audit.why.recover import recover_order
from neartie.audit.why.schedule_trees import schedule_trees
from neartie.audit.why.schedules import (
    attribute_schedule,
    candidates,
    telling_partials,
)
from neartie.audit.why.tree import Tree, all_binary_trees, key_of, without_bits
from neartie.banks.bank import Bank
from neartie.banks.geometry import PRESETS
from neartie.banks.open import expand_banks
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.project import latent_partials
from neartie.kernels.reduce import run_schedule
from neartie.kernels.reference import reference_product
from neartie.kernels.registry import make_path

RESULTS = Path(__file__).parent / "results"
RANKS = (2, 4, 8, 16)
WIDTH = 12
SOURCES = ("gaussian:geometry=mini,rows={rows},seed=1", "k3-mini")


class BankSource:
    """A bank's first rows: their partials, their exact latent, and what a path makes of them."""

    def __init__(self, bank: Bank, rows: int) -> None:
        self.name, self._bank = bank.name, bank
        self._block, self._weights = bank.read(0, rows), front_weights(bank)
        hidden, weight = self._block.hidden, self._weights.latent
        assert hidden is not None
        assert weight is not None
        self._hidden, self._weight = hidden, weight
        self.reference: Any = reference_product(hidden, weight)

    def partials(self, ranks: int) -> Any:
        """[rank, row, latent] BF16."""
        return latent_partials(self._hidden, self._weight, ranks)

    def latent(self, path: Any, ranks: int) -> Any:
        """[rank, row, latent] BF16 of a run of the whole front."""
        launch = make_launch(self._bank, self._weights, self._block, WIDTH, ranks)
        return run_path(path, launch).latent


class CancellingSource:
    """Partials that cancel, fed to a path's exchange; the reference is their sum."""

    name, reference = "partials that cancel", None

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partials(self, ranks: int) -> Any:
        """[rank, row, latent] BF16."""
        return telling_partials(ranks, self._rows, PRESETS["mini"][0].latent)

    def latent(self, path: Any, ranks: int) -> Any:
        """[rank, row, latent] BF16 after the exchange."""
        exchange = Exchange(path, *PRESETS["mini"], ranks, WIDTH)
        partials = self.partials(ranks)
        return exchange.feed(partials.reshape(ranks, -1, exchange.places)).reshape(partials.shape)


def sources(rows: int) -> Iterator[BankSource | CancellingSource]:
    """The banks of the first table."""
    for spec in SOURCES:
        for bank in expand_banks([spec.format(rows=rows)]):
            yield BankSource(bank, rows)
    yield CancellingSource(rows)


def general(schedule: str) -> Any:
    """The general path with a schedule."""
    name, _, islands = schedule.partition(":")
    return make_path(f"general:reduce={name}" + (f",islands={islands}" if islands else ""))


def identification(rows: int) -> list[dict[str, Any]]:
    """One line a source, number of ranks and schedule."""
    lines = []
    for source in sources(rows):
        for ranks in RANKS:
            partials = source.partials(ranks)
            for schedule in candidates(ranks):
                found = attribute_schedule(
                    partials,
                    source.latent(general(schedule), ranks),
                    reference=source.reference,
                    width=WIDTH,
                )
                alike = set(found.names) - {schedule}
                always = {one for group in found.always_equal if schedule in group for one in group}
                second = next((m for m in found.matches if m.schedule not in found.names), None)
                lines.append(
                    {
                        "source": source.name,
                        "ranks": ranks,
                        "schedule": schedule,
                        "answer": found.answer,
                        "names": list(found.names),
                        "right": schedule in found.names,
                        "same_arithmetic": sorted(alike & always),
                        "same_bits_here": sorted(alike - always),
                        "elements": found.elements,
                        "equal": found.match(schedule).equal,
                        "next": None if second is None else second.schedule,
                        "next_equal": None if second is None else second.equal,
                        "next_apart": None if second is None else second.apart,
                        "next_off": None if second is None else second.off,
                    }
                )
    return lines


def print_identification(lines: list[dict[str, Any]]) -> None:
    """Print a line each, the six layers of k3-mini only in the sums below."""
    for line in lines:
        if "/layer" in line["source"] and not line["source"].endswith("layer0"):
            continue
        also = [f"same arithmetic: {', '.join(line['same_arithmetic'])}"]
        also += [f"same bits here: {', '.join(line['same_bits_here'])}"]
        told = "; ".join(text for text in also if not text.endswith(": "))
        print(
            f"{line['source'].split(':')[0]:<22} P={line['ranks']:<3} {line['schedule']:<20} "
            f"{'right' if line['right'] else 'WRONG'}  {line['answer']:<10} "
            f"{line['equal']:,} of {line['elements']:,}; next {line['next']} "
            f"{line['next_equal'] or 0:,}" + (f"  [{told}]" if told else "")
        )
    right = sum(line["right"] for line in lines)
    alone = sum(line["answer"] == "identified" for line in lines)
    shared = [line for line in lines if line["answer"] != "identified"]
    arithmetic = sum(not line["same_bits_here"] for line in shared)
    print(
        f"{right} of {len(lines)} answers name the schedule; {alone} name it alone, {arithmetic} "
        f"share its arithmetic at that P, {len(shared) - arithmetic} its bits on those rows"
    )


def summed(tree: Tree) -> Callable[[Any], float]:
    """A sum in FP32 in a tree's order, one addition after another."""

    def value(part: Tree, terms: Any) -> Any:
        if isinstance(part, int):
            return np.float32(terms[part])
        left, right = part.parts
        return np.float32(value(left, terms) + value(right, terms))

    return lambda terms: float(value(tree, terms))


def product(rows: int, columns: int) -> Callable[[Any], float]:
    """The last element of torch's FP32 product [rows, n] x [n, columns] with ones."""

    def element(terms: Any) -> float:
        left = torch.zeros(rows, len(terms))
        left[-1] = torch.from_numpy(terms.copy())
        return float((left @ torch.ones(len(terms), columns))[-1, -1])

    return element


def split_product(ranks: int, schedule: str, accumulate: str) -> Callable[[Any], float]:
    """The general path's K-split product of one hidden row with ones, and its reduction."""

    def element(terms: Any) -> float:
        hidden, weight = np.zeros((4, len(terms)), BFLOAT16), np.ones((8, len(terms)), BFLOAT16)
        hidden[-1] = terms
        partials = latent_partials(hidden, weight, ranks, accumulate)
        return float(run_schedule(schedule, partials, 4)[0, -1, -1])

    return element


def boxes() -> Iterator[tuple[str, Callable[[Any], float], int, str]]:
    """Black boxes: name, function, terms, dtype."""
    random = np.random.default_rng(0)
    sequential = summed(chain(list(range(64))))
    yield "sequential FP32 sum", sequential, 64, "fp32"
    yield "sequential FP32 sum from the last", lambda t: sequential(t[::-1]), 64, "fp32"
    yield "pairs, level by level, FP32", summed(adjacent(list(range(64)))), 64, "fp32"
    for count in (7, 64, 128, 300):
        yield f"numpy.sum, {count} float32", np.sum, count, "fp32"
    yield "numpy.sum, 300 float64", np.sum, 300, "fp64"
    yield "numpy.sum, 300 float16", np.sum, 300, "fp16"
    yield "torch.matmul [4,256] x [256,8], float32", product(4, 8), 256, "fp32"
    yield "torch.matmul [1,256] x [256,1], float32", product(1, 1), 256, "fp32"
    tensor = torch.from_numpy
    yield "torch.sum, 256 float32", lambda t: float(tensor(t.copy()).sum()), 256, "fp32"
    for ranks, schedule in ((1, "one_shot_fp32"), (4, "running_bf16"), (8, "tree_bf16")):
        name = f"accumulate=fp32, {ranks} x {256 // ranks} terms, {schedule}"
        yield name, split_product(ranks, schedule, "fp32"), 256, "bf16"
    exact = split_product(1, "one_shot_fp32", "fp64")
    yield "accumulate=fp64, 1 x 64 terms", exact, 64, "bf16"
    exact = split_product(4, "running_bf16", "fp64")
    yield "accumulate=fp64, 4 x 16 terms, running_bf16", exact, 64, "bf16"
    yield "math.fsum, 64 float64", lambda t: math.fsum(t.tolist()), 64, "fp64"
    yield "FP32 sum, shuffled at each call", lambda t: sequential(random.permutation(t)), 64, "fp32"


def recovery() -> list[dict[str, Any]]:
    """One line a black box and method."""
    lines = []
    for name, function, terms, dtype in boxes():
        for method in ("fast", "plain"):
            if method == "plain" and terms > 128:
                continue
            start = time.perf_counter()
            found = recover_order(function, terms, dtype, method=method)  # type: ignore[arg-type]
            seconds = time.perf_counter() - start
            line = {"box": name, "method": method, "seconds": seconds, **found.figures()}
            lines.append({**line, "bits": sorted({*(line["bits"] or ())})})
            print(
                f"{name:<42} {method:<6} {found.state:<6} {found.probes:>6} sums, random "
                f"{found.reproduced}/{found.trials}: {found.text()[:110]}"
            )
    return lines


def exchanges() -> list[dict[str, Any]]:
    """Each schedule through the general path's own exchange, against the tree it declares."""
    lines = []
    for ranks in RANKS:
        for schedule in candidates(ranks):
            path = general(schedule)
            exchange = Exchange(path, *PRESETS["mini"], ranks, WIDTH)
            orders = recover_exchange(exchange)
            declared = {key_of(tree) for tree in schedule_trees(schedule, ranks)}
            shown = {key_of(one.order.tree) for one in orders if one.order.tree is not None}
            transport = exchange_transport(exchange)
            lines.append(
                {
                    "path": path.name,
                    "ranks": ranks,
                    "orders": len(orders),
                    "as_declared": shown == declared,
                    "states": sorted({one.order.state for one in orders}),
                    "order": orders[0].order.text(),
                    "sums_of_whole_numbers": transport.sums,
                    "wrong": transport.wrong,
                }
            )
            line = lines[-1]
            print(
                f"P={ranks:<3} {schedule:<20} {line['orders']:>2} orders, "
                f"{'as declared' if line['as_declared'] else 'NOT AS DECLARED'}: {line['order']}"
            )
    return lines


def brute_force() -> list[dict[str, Any]]:
    """Every tree of 2 to 6 terms: recovered by both methods, and alone in giving its bits."""
    lines = []
    for count in range(2, 7):
        trees = list(all_binary_trees(range(count)))
        right = {"fast": 0, "plain": 0}
        for tree in trees:
            for method in ("fast", "plain"):
                found = recover_order(summed(tree), count, method=method, trials=16)  # type: ignore[arg-type]
                if found.state == "tree" and found.tree is not None:
                    right[method] += key_of(without_bits(found.tree)) == key_of(tree)
        lines.append({"terms": count, "trees": len(trees), **right})
        fast, plain = right["fast"], right["plain"]
        print(f"{count} terms: {len(trees)} trees; recovered {fast} fast, {plain} plain")
    return lines


def alone() -> list[dict[str, Any]]:
    """Real sums of 6 terms: which of all 945 trees give their bits on random terms."""
    lines = []
    functions = {"numpy.sum": np.sum, "torch.matmul [4,6] x [6,8]": product(4, 8)}
    terms = random_terms(FORMATS["fp32"], 6, 256)
    for name, function in functions.items():
        found = recover_order(function, 6)
        wanted = [float(function(row)) for row in terms]
        left = [
            tree
            for tree in all_binary_trees(range(6))
            if all(summed(tree)(row) == total for row, total in zip(terms, wanted, strict=True))
        ]
        shown = [] if found.tree is None else [key_of(without_bits(found.tree))]
        same = shown == [key_of(tree) for tree in left]
        lines.append({"box": name, "trees_left": len(left), "it_is_the_recovered": same})
        print(f"{name}, 6 terms: {len(left)} of 945 trees give its bits; the recovered one: {same}")
    return lines


def main() -> None:
    """Print both tables and store them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=48, help="rows of each bank")
    parser.add_argument("--out", type=Path, default=RESULTS / "why.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = identification(options.rows // WIDTH * WIDTH)
    print_identification(lines)
    result = {
        "command": " ".join(["python", "-P", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "identification": lines,
        "recovery": recovery(),
        "exchanges": exchanges(),
        "brute_force": brute_force(),
        "alone": alone(),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    wrong = sum(not line["right"] for line in lines)
    wrong += sum(not line["as_declared"] for line in result["exchanges"])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
