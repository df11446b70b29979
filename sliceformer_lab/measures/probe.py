"""Measures of a layer's token matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from sliceformer_lab.measures.probe_record import FORMS, MEASURES, PLACES
from sliceformer_lab.measures.residual import centre_of, norm_1_inf
from sliceformer_lab.measures.spectrum import (
    effective_rank,
    normalised,
    remove_profile,
    remove_token_mean,
    singular_values,
    stable_rank,
    token_cosine,
)


def measure(x: Tensor) -> dict[str, Tensor]:
    """All measures of matrices (S, N, C) in all forms: name -> (S, F), the spectrum (S, F, min(N, C)).

    The spectrum is s_i / s_1 of the form itself. The 0 that a removal always leaves at its end is NaN: in a mean over
    samples of other lengths it would be a step. The residual is the (1,inf)-norm of a form minus its mean token,
    divided by the norm of the raw X: the share of X that is neither `1 x^T` nor, with the profile removed, `q a^T`.
    All values are NaN if X is not finite.
    """
    if not x.isfinite().all():
        return {k: v * torch.nan for k, v in measure(torch.zeros_like(x)).items()}
    forms = torch.stack([x.double(), remove_token_mean(x), remove_profile(x)], dim=1)  # (S, F, N, C)
    values = singular_values(forms[:, :2])
    rest = pad(values[:, :1, 1:], (0, 1))  # the profile is the largest value
    values = torch.cat([values, rest.where(forms[:, 2:].flatten(2).any(-1, keepdim=True), 0.0)], dim=1)
    scale = norm_1_inf(x).clamp_min(torch.finfo(torch.float64).tiny)
    spectrum = normalised(values)
    spectrum[:, 1 if x.shape[1] <= x.shape[2] else 2 :, -1] = torch.nan
    return {
        "spectrum": spectrum,
        "stable_rank": stable_rank(values),
        "effective_rank": effective_rank(values),
        "residual": norm_1_inf(forms - centre_of(forms)) / scale[:, None],
        "cosine": token_cosine(forms),
    }


def chosen_tokens(num_prefix: int, length: int, max_tokens: int, seed: int) -> Tensor:
    """Positions of the tokens to measure: `num_prefix` to `length`, or `max_tokens` of these chosen by `seed`."""
    count = max(length - num_prefix, 0)
    if count <= max_tokens:
        return torch.arange(num_prefix, num_prefix + count)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return num_prefix + order[:max_tokens].sort().values


def measure_samples(
    x: Tensor, lengths: Tensor, *, num_prefix: int = 0, max_tokens: int = 256, seed: int = 0
) -> dict[str, Tensor]:
    """`measure` of the real tokens of rows (S, N, C) with `lengths` (S,), without the first `num_prefix` tokens.

    Returns (S, F), and the spectrum (S, F, R) with the largest possible R and NaN for samples with fewer values.
    """
    longest = min(max(x.shape[1] - num_prefix, 0), max_tokens, x.shape[2])
    sizes = {name: (longest,) if name == "spectrum" else () for name in MEASURES}
    found = {
        name: x.new_full((len(x), len(FORMS), *size), torch.nan, dtype=torch.float64) for name, size in sizes.items()
    }
    for length in sorted(set(lengths.tolist())):
        tokens = chosen_tokens(num_prefix, length, max_tokens, seed)
        if len(tokens):
            rows = lengths == length
            for name, values in measure(x[rows][:, tokens]).items():
                found[name][rows, ..., : values.shape[-1]] = values
    return found


def measure_layers(
    blocks: Sequence[Any], taken: Sequence[Mapping[str, Tensor]], *, max_tokens: int, seed: int
) -> list[list[dict[str, Tensor]]]:
    """`measure_samples` of what `record_blocks` took of each block, at each of PLACES, without prefix tokens.

    Where an input is a few inducing points instead of the tokens, all of them are measured.
    """
    layers = []
    for block, seen in zip(blocks, taken, strict=True):
        places = []
        for x in (seen[place] for place in PLACES):
            is_tokens = x.shape[1] == seen["stream"].shape[1]
            lengths = seen["lengths"] if is_tokens else torch.full((len(x),), x.shape[1])
            prefix = block.attention.spec.num_prefix if is_tokens else 0
            places.append(measure_samples(x, lengths, num_prefix=prefix, max_tokens=max_tokens, seed=seed))
        layers.append(places)
    return layers


def over_samples(
    layers: Sequence[Sequence[Mapping[str, Tensor]]], name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Mean, deviation and number over samples without NaN, of `measure_samples` at [layer][place]: each (L, P, F, ...).

    Samples of few tokens have few singular values. Values that fewer than half of the samples have are NaN, because
    their mean is one of other samples: it rises where a sample ends, which no spectrum does.
    """
    found = [[place[name] for place in layer] for layer in layers]
    longest = max(values.shape[-1] for layer in found for values in layer)
    padded = [[pad(values, (0, longest - values.shape[-1]), value=torch.nan) for values in layer] for layer in found]
    stacked = torch.stack([torch.stack(layer) for layer in padded])  # (L, P, S, F, ...)
    known = stacked.isfinite().sum(2, keepdim=True)
    most = known.amax(-1, keepdim=True) if name == "spectrum" else known
    mean = stacked.nanmean(2, keepdim=True).where(2 * known >= most, torch.nan)
    std = (stacked - mean).square().nanmean(2).sqrt()
    return mean.squeeze(2).numpy(), std.numpy(), known.squeeze(2).numpy()
