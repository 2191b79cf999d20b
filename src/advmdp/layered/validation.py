"""Checks of kernels, features and parameters; what is wrong is said with the layer, state and action where it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._checks import float_array
from advmdp.errors import InvalidMDPError
from advmdp.layered.rows import SparseRows, Table, is_sparse, like, per_entry, sparse_table, sums_of, values_of
from advmdp.layered.shape import BoolArray, FloatArray, Layers, distinct, read_only

#: Rows must sum to one, and norms respect their bounds, up to this.
TOLERANCE = 1e-9
#: A sparse matrix is stored as it is if its dense table would have more entries than this, and mostly zeros.
DENSE_ENTRIES = 50_000
DENSE_SHARE = 0.2


def frozen_arrays(
    entries: Sequence[Any], ndim: int, what: str, available: Sequence[BoolArray] | None = None
) -> tuple[Any, ...]:
    """Private, read-only, finite float64 copies; entries that are one object stay one object.

    Kernels may be sparse matrices ``(S_h * A, S_{h+1})``; large ones stay sparse.  Where masks are given, the rows of
    an unavailable action are replaced by those of the first available one of its state: whoever looks at them sees
    nothing new.
    """
    if not isinstance(entries, Iterable):
        raise InvalidMDPError(f"{what} is {entries!r}, should be a list of arrays, one per layer 0 to H-1")
    entries = list(entries)  # holds every entry, so that no two of them can share an id by accident
    if not entries:
        raise InvalidMDPError(f"{what} is empty, should have one array per layer 0 to H-1")
    if available is not None and len(available) != len(entries):
        raise InvalidMDPError(f"available has {len(available)} layers, should have {len(entries)} like {what}")
    # Of the single first state: its actions are all rows of a sparse matrix.
    n_actions = entries[0].shape[0] if is_sparse(entries[0]) and not isinstance(entries[0], SparseRows) else None
    copies: dict[tuple[int, bytes], Any] = {}
    keys = [(id(e), b"" if available is None else available[h].tobytes()) for h, e in enumerate(entries)]
    for h, entry in enumerate(entries):
        if keys[h] in copies:
            continue
        table = _stored(entry, n_actions, f"{what}[{h}]")
        n_actions = table.shape[1] if h == 0 and table.ndim == ndim else n_actions
        if table.ndim != ndim:
            wanted = "(S_h, A, S_{h+1})" if ndim == 3 else "(S_h, A, S_{h+1}, d)"
            raise InvalidMDPError(f"{what}[{h}] has shape {table.shape}, should be {wanted}")
        if available is not None:
            table = with_copied_rows(table, first_available(available[h], table.shape[:2], h))
        wrong = ~np.isfinite(values_of(table))
        if wrong.any():
            place, value = _first_wrong(table, wrong)
            raise InvalidMDPError(f"{what}[{h}], {place}: value {value} is not a finite number")
        # A view of a read-only array: its flag cannot be set back.
        copies[keys[h]] = table if isinstance(table, SparseRows) else read_only(table).view()
    return tuple(copies[key] for key in keys)


def _stored(entry: Any, n_actions: int | None, what: str) -> Table:
    """A private copy of a layer: dense, unless it is sparse, large and mostly zeros."""
    if isinstance(entry, SparseRows):
        return entry
    if not is_sparse(entry):
        return np.array(float_array(entry, what, InvalidMDPError), order="C")
    rows = sparse_table(entry, n_actions, what)
    size = int(np.prod(rows.shape))
    if size > DENSE_ENTRIES and rows.nexts.size < DENSE_SHARE * size:
        return rows
    return np.array(rows, order="C")


def _first_wrong(table: Table, wrong: NDArray[np.bool_]) -> tuple[str, float]:
    """Where the first flagged value of a layer is, in words, and the value."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    value = float(values_of(table)[index])
    return _place((*table.place(index[0]), *index[1:]) if isinstance(table, SparseRows) else index), value


def checked_available(available: Any) -> list[BoolArray] | None:
    """Masks as private arrays of bool, at least one True per state."""
    if available is None:
        return None
    if not isinstance(available, Iterable):
        raise InvalidMDPError(f"available is {available!r}, should be a list over layers of arrays (S_h, A) of bool")
    masks: list[BoolArray] = []
    for h, entry in enumerate(available):
        array = np.asarray(entry)
        if array.ndim != 2 or not (
            array.dtype == np.bool_ or (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all())
        ):
            raise InvalidMDPError(
                f"available[{h}] has shape {array.shape} and type {array.dtype}, should be (S_h, A) of True and False"
            )
        mask: BoolArray = np.array(array, dtype=np.bool_)
        masks.append(mask)
        if not mask.any(axis=1).all():
            state = int(mask.any(axis=1).argmin())
            raise InvalidMDPError(f"available[{h}], state {state}: no action is available, should be one or more")
    return masks


def first_available(mask: BoolArray, shape: tuple[int, ...], h: int) -> NDArray[np.intp]:
    """The action whose row stands at each pair ``(S_h, A)``: itself, or the first available one."""
    if mask.shape != shape:
        raise InvalidMDPError(
            f"available[{h}] has shape {mask.shape}, should be {shape} (states of the layer, actions)"
        )
    return np.where(mask, np.arange(shape[1]), mask.argmax(axis=1)[:, None])


def with_copied_rows(array: Any, action: NDArray[np.intp]) -> Any:
    """Rows ``(S_h, A, ...)`` taken from these actions ``(S_h, A)`` of the same state."""
    if isinstance(array, SparseRows):
        return array.taken(action + action.shape[1] * np.arange(len(action))[:, None])
    copied: FloatArray = array[np.arange(len(array))[:, None], action]
    return copied


def masked_layers(
    sizes: tuple[int, ...], n_actions: int, masks: Sequence[BoolArray] | None, possible: Sequence[Any] | None = None
) -> Layers:
    """The shape with its masks; ``possible``, tables ``(S_h, A, S_{h+1})``, says which states can be reached."""
    layers = Layers(sizes, n_actions)
    if masks is None:
        return layers
    if len(masks) != layers.horizon:
        raise InvalidMDPError(f"available has {len(masks)} layers, should have {layers.horizon}")
    for h, mask in enumerate(masks):
        first_available(mask, (sizes[h], n_actions), h)
    if all(mask.all() for mask in masks):
        return layers
    reached = None
    if possible is not None:
        here: list[BoolArray] = [np.ones(1, dtype=np.bool_)]
        for table in possible[: layers.horizon - 1]:
            here.append(leads_to(table, here[-1]))
        reached = read_only(np.concatenate([*here, np.ones(1, dtype=np.bool_)]))
    return Layers(sizes, n_actions, read_only(np.concatenate(masks, axis=None)), reached)


def leads_to(table: Any, states: BoolArray) -> BoolArray:
    """The next states that these states of a layer can lead to; ``table`` says which transitions are possible."""
    if not isinstance(table, SparseRows):
        return np.asarray(table[states].any(axis=(0, 1)))
    found = np.zeros(table.shape[2], dtype=np.bool_)
    found[table.nexts[table.values & states[table.pairs // table.shape[1]]]] = True
    return found


def possible_transitions(table: Table) -> Any:
    """Where a layer of kernels or features is not zero: bool, of its own kind."""
    flags = values_of(table) != 0.0
    if isinstance(table, SparseRows):
        return table.with_values(flags.any(axis=1) if flags.ndim > 1 else flags)
    return flags.any(axis=3) if flags.ndim > 3 else flags


def checked_kernels(kernels: Sequence[Any], available: Sequence[BoolArray] | None = None) -> tuple[Layers, list[Any]]:
    """The shape that kernels have, and their rows, normalised; entries that are one object stay one object."""
    arrays = frozen_arrays(kernels, 3, "kernels", available)
    possible = None if available is None else [possible_transitions(array) for array in arrays]
    layers = masked_layers(layer_sizes(arrays, "kernels"), arrays[0].shape[1], available, possible)
    checked = {id(array): probability_rows(array, h) for h, array in distinct(arrays)}
    return layers, [checked[id(array)] for array in arrays]


def layer_sizes(arrays: Sequence[Any], what: str) -> tuple[int, ...]:
    """States per layer of kernels or features, checked to fit together."""
    n_actions = arrays[0].shape[1]
    for h, array in enumerate(arrays):
        if array.shape[1] != n_actions:
            raise InvalidMDPError(
                f"{what}[{h}] has {array.shape[1]} actions, {what}[0] has {n_actions}: the number of "
                "actions is the same everywhere"
            )
        if h > 0 and array.shape[0] != arrays[h - 1].shape[2]:
            raise InvalidMDPError(
                f"{what}[{h}] has {array.shape[0]} states, but {what}[{h - 1}] leads to "
                f"{arrays[h - 1].shape[2]} next states: they should be equal"
            )
    return (*(array.shape[0] for array in arrays), arrays[-1].shape[2])


def probability_rows(array: Any, h: int, what: str = "kernels", negative: float = 1e-12) -> Any:
    """Rows that are distributions, rounding errors (below -``negative``) cut off and normalised away."""
    values = values_of(array)
    least = values.min(initial=0.0)
    if least < -negative:
        place, value = _first_wrong(array, values == least)
        raise InvalidMDPError(f"{what}[{h}], {place}: probability {value:.6g} is negative")
    sums = sums_of(array)
    off = np.abs(sums - 1.0)
    if off.max() > TOLERANCE:
        s, a = (int(i) for i in np.argwhere(off > TOLERANCE)[0])
        raise InvalidMDPError(
            f"{what}[{h}], {_place((s, a))}: probabilities sum to {sums[s, a]:.12g}, should be 1 (within {TOLERANCE:g})"
        )
    if least < 0.0:
        values = np.maximum(values, 0.0)
        sums = sums_of(like(array, values))
        off = np.abs(sums - 1.0)
    # Rows that are right to rounding stay as they are, so that normalising twice changes nothing.
    wrong = off > 1e-14
    if wrong.any():
        values = values / per_entry(array, np.where(wrong, sums, 1.0))
    return like(array, values)


def check_norms(features: Table, h: int) -> None:
    """Features have norm at most one."""
    values = values_of(features)
    norms = np.sqrt(np.einsum("...d,...d->...", values, values))
    if norms.max(initial=0.0) > 1.0 + TOLERANCE:
        place, _ = _first_wrong(features, (norms == norms.max())[..., None])
        raise InvalidMDPError(
            f"features[{h}], {place.rsplit(', coordinate', 1)[0]}: norm {norms.max():.6g}, should be at most 1 "
            "(divide the features by their largest norm and multiply theta and bound by it)"
        )


def check_simplex_features(features: Table, h: int, bound: float) -> None:
    """Features are those of a mixture: non-negative, of one sum over next states."""
    values = values_of(features)
    if values.min(initial=0.0) < 0.0:
        place, value = _first_wrong(features, values == values.min())
        raise InvalidMDPError(
            f"features[{h}], {place}: value {value:.6g} is negative, should be >= 0 since simplex=True"
        )
    sums = sums_of(features)
    common = float(sums[0, 0, 0])
    differ = np.abs(sums - common) > TOLERANCE * max(1.0, abs(common))
    if differ.any() or common <= 0.0:
        s, a = (int(i) for i in np.argwhere(differ)[0][:2]) if differ.any() else (0, 0)
        raise InvalidMDPError(
            f"features[{h}], {_place((s, a))}: sums over next states {sums[s, a]}, should be "
            f"{common:.6g} > 0 in every coordinate of every pair of the layer since simplex=True"
        )
    # theta is a vector of weights divided by that sum; the shortest has equal weights.
    least = 1.0 / (common * np.sqrt(sums.shape[2]))
    if bound < least * (1.0 - TOLERANCE):
        raise InvalidMDPError(f"bound is {bound:.6g}, but every parameter of layer {h} has norm at least {least:.6g}")


def check_feasible(features: Table, h: int) -> None:
    """Some parameter must make every row of the layer sum to one."""
    sums = sums_of(features)
    design = sums.reshape(-1, sums.shape[2])
    theta = np.linalg.lstsq(design, np.ones(len(design)), rcond=None)[0]
    errors = np.abs(sums @ theta - 1.0)
    if errors.max() > 1e-6:
        s, a = (int(i) for i in np.unravel_index(int(errors.argmax()), errors.shape))
        raise InvalidMDPError(
            f"features[{h}], {_place((s, a))}: no parameter makes the rows of this layer sum to 1 (here the "
            f"nearest one gives {float(sums[s, a] @ theta):.6g})"
        )


def checked_pair_features(features: Any, available: Sequence[BoolArray] | None) -> tuple[FloatArray, ...]:
    """Private, read-only features of pairs ``(S_h, A, d)``, finite and of norm at most one; one d in all layers.

    Those of an unavailable action are replaced by those of the first available one of its state.
    """
    if not isinstance(features, Iterable):
        raise InvalidMDPError(
            f"features is {features!r}, should be a list of arrays (S_h, A, d), one per layer 0 to H-1"
        )
    arrays = [np.array(float_array(entry, f"features[{h}]", InvalidMDPError)) for h, entry in enumerate(features)]
    if not arrays:
        raise InvalidMDPError("features is empty, should have one array (S_h, A, d) per layer 0 to H-1")
    if available is not None and len(available) != len(arrays):
        raise InvalidMDPError(f"available has {len(available)} layers, should have {len(arrays)} like features")
    for h, array in enumerate(arrays):
        wanted = (*arrays[0].shape[1:],) if arrays[0].ndim == 3 else ("A", "d")
        if array.ndim != 3 or 0 in array.shape or array.shape[1:] != wanted:
            shape = ", ".join(map(str, ("S_h", *wanted)))
            raise InvalidMDPError(f"features[{h}] has shape {array.shape}, should be ({shape}), none of them 0")
        if available is not None:
            arrays[h] = array = with_copied_rows(array, first_available(available[h], array.shape[:2], h))
        norms = np.sqrt(np.einsum("sad,sad->sa", array, array))
        wrong = ~(norms <= 1.0 + TOLERANCE)
        if wrong.any():
            s, a = (int(i) for i in np.argwhere(wrong)[0])
            raise InvalidMDPError(
                f"features[{h}], {_place((s, a))}: norm {norms[s, a]:.6g}, should be at most 1 (divide the features by "
                "their largest norm and multiply the measures by it)"
            )
    return tuple(read_only(array).view() for array in arrays)


def checked_measures(measures: Any, shapes: Sequence[tuple[int, int]]) -> tuple[FloatArray, ...]:
    """Private, read-only, finite measures ``(d, S_{h+1})``, of these shapes."""
    if not isinstance(measures, Sequence | np.ndarray) or len(measures) != len(shapes):
        count = len(measures) if isinstance(measures, Sequence | np.ndarray) else "no"
        raise InvalidMDPError(f"measures has {count} layers, features have {len(shapes)}: one array per layer")
    arrays = [np.array(float_array(entry, f"measures[{h}]", InvalidMDPError)) for h, entry in enumerate(measures)]
    for h, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        if array.shape != shape:
            raise InvalidMDPError(
                f"measures[{h}] has shape {array.shape}, should be {shape} (d, states of layer {h + 1})"
            )
        if not np.isfinite(array).all():
            i, s = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise InvalidMDPError(
                f"measures[{h}], coordinate {i}, next state {s}: {array[i, s]} is not a finite number"
            )
    return tuple(read_only(array).view() for array in arrays)


def checked_bound(value: Any) -> float:
    """B, a finite number > 0."""
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        with suppress(OverflowError):
            if np.isfinite(float(value)) and value > 0:
                return float(value)
    raise InvalidMDPError(f"bound is {value!r}, should be a finite number > 0 (B of the model)")


def checked_scales(scales: Sequence[float] | None, horizon: int) -> tuple[float, ...]:
    """H finite numbers > 0; ones where none are given."""
    array = np.ones(horizon) if scales is None else float_array(scales, "scales", InvalidMDPError)
    if array.shape != (horizon,) or not (np.isfinite(array).all() and array.min() > 0.0):
        raise InvalidMDPError(f"scales is {scales!r}, should be {horizon} finite numbers > 0, one per layer 0 to H-1")
    return tuple(array.tolist())


def check_common_sum(features: Sequence[Any], scales: Sequence[float]) -> None:
    """Some vector of weights fits all layers: features times scales have one sum over next states."""
    sums = [float(array[0, 0][:, 0].sum()) * scale for array, scale in zip(features, scales, strict=False)]
    for h, total in enumerate(sums):
        if abs(total - sums[0]) > TOLERANCE * max(1.0, sums[0]):
            raise InvalidMDPError(
                f"features[{h}] * scales[{h}] sum to {total:.6g} over next states, those of layer 0 to {sums[0]:.6g}: "
                "should be equal since shared=True (scales are what features were divided by)"
            )


def check_one_mixture(weights: Sequence[FloatArray] | FloatArray) -> None:
    """Mixture weights that are the same in every layer."""
    for h, row in enumerate(weights):
        if np.abs(row - weights[0]).max() > TOLERANCE * max(1.0, float(np.abs(weights[0]).max())):
            raise InvalidMDPError(
                f"the mixture weights of layer {h} are {row}, those of layer 0 are {weights[0]}: they should be equal "
                "since shared=True"
            )


def checked_parameter(vector: ArrayLike, h: int) -> FloatArray:
    """A private, read-only, finite copy of theta_h."""
    array = np.array(float_array(vector, f"theta[{h}]", InvalidMDPError))
    if not np.isfinite(array).all():
        raise InvalidMDPError(f"theta[{h}] = {array} has an entry that is not a finite number")
    return read_only(array).view()


def _place(index: tuple[int, ...]) -> str:
    names = ("state", "action", "next state", "coordinate")
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=False))
