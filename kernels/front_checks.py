"""What both kinds of front, CPU and device, ask of a launch and of their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from ..banks.errors import EnvelopeError, InputError
from .contract import Launch, check_width
from .reduce import check_islands


def refuse_idle(
    given: Mapping[str, str], values: Mapping[str, str], key: str, needs: tuple[str, str], name: str
) -> None:
    """Refuse an option that another one's value makes idle.

    Raises:
        InputError: ``key`` is given although ``needs`` (option, value) does not hold.
    """
    option, value = needs
    if key in given and values[option] != value:
        raise InputError(key, given[key], f"left out unless {option}={value}", name)


def check_rows(launch: Launch, name: str) -> None:
    """Refuse a width outside the envelope, or rows that are no whole launches.

    Raises:
        EnvelopeError: either.
    """
    check_width(launch.width, name)
    if launch.rows % launch.width:
        raise EnvelopeError("rows", launch.rows, f"a multiple of {launch.width}", name)


def check_inputs(launch: Launch, kind: str, options: Mapping[str, str], name: str) -> None:
    """Refuse a launch that lacks what the front starts from.

    Args:
        launch: the launch.
        kind: ``general`` or ``route``.
        options: the path's options with their values.
        name: the path's, for messages.

    Raises:
        EnvelopeError: no logits input, ranks that do not divide the geometry, or the other kind's
            latent pieces.
        InputError: a router weight that the bank does not have.
    """
    if launch.hidden is None and launch.logits_shards is None and launch.logits is None:
        raise EnvelopeError("logits input", "nothing", "hidden, shards or logits", name)
    if launch.hidden is not None:
        router_weight(launch, options["router_weight"], name)
    pieces = (launch.latent_partials, launch.latent_shards, launch.logits_shards)
    if launch.hidden is not None or any(piece is not None for piece in pieces):
        _check_exchange(launch, kind, options, name)


def _check_exchange(launch: Launch, kind: str, options: Mapping[str, str], name: str) -> None:
    try:
        launch.geometry.check_ranks(launch.ranks)
    except InputError as error:
        raise EnvelopeError(error.what, error.got, error.expected, error.where) from error
    if options.get("reduce") == "two_level":
        check_islands(launch.ranks, int(options["islands"]))
    mine, other = launch.latent_partials, launch.latent_shards
    names = ("latent_partials", "latent_shards")
    if kind == "route":
        mine, other, names = other, mine, names[::-1]
    if launch.hidden is None and mine is None and other is not None:
        raise EnvelopeError("latent input", names[1], f"{names[0]} or hidden", name)


def router_weight(launch: Launch, option: str, name: str) -> npt.NDArray[Any]:
    """Return the router weight [expert, hidden] that the option names.

    Raises:
        InputError: a weight that the bank does not have.
    """
    weights = launch.weights
    known = dict(weights.extra)
    if weights.router is not None:
        known["router_weight"] = weights.router
    if option not in known:
        have = ", ".join(sorted(known)) or "a bank with router weights"
        raise InputError("router_weight", option, f"one of {have}", name)
    return known[option]


def latent_schedule(options: Mapping[str, str]) -> str:
    """Return the name that ``Declared.latent_schedule`` gives to a reduction with its options."""
    schedule = options["reduce"]
    return f"two_level:{options['islands']}" if schedule == "two_level" else schedule
