"""Two kinds of collapse of token matrices: to `1 x^T`, where all tokens are equal, and to any rank-one `q a^T`.

Random tokens, random layers around an operator, and measures that distinguish the two kinds. Nothing is trained: the
effect on random values is a property of the operator, while a trained model may adapt its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from sliceformer_lab.measures.probe_record import FORMS
from sliceformer_lab.measures.spectrum import remove_profile, remove_token_mean

Mix = Callable[[Tensor, Tensor, Tensor], Tensor]  # values, queries and keys (B, N, C) -> (B, N, C)

SHOWN = {  # numbers that a rank study reports: name -> a measure of `measures.probe` and its form
    "stable_rank": ("stable_rank", "raw"),
    "effective_rank": ("effective_rank", "raw"),
    "s2_over_s1": ("spectrum", "raw"),
    "residual": ("residual", "raw"),
    "stable_rank_mean_removed": ("stable_rank", "mean_removed"),
    "stable_rank_profile_removed": ("stable_rank", "profile_removed"),
    "residual_profile_removed": ("residual", "profile_removed"),
    "cosine": ("cosine", "raw"),
}
BRANCH_GAIN = 0.5  # factor of the attention branch that a random layer adds to its skip connection


def shown(measured: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The numbers of SHOWN, (S,) each, from the results of `measures.probe.measure` for S samples."""
    found = {name: measured[measure][:, FORMS.index(form)] for name, (measure, form) in SHOWN.items()}
    spectrum = found["s2_over_s1"]
    found["s2_over_s1"] = spectrum[:, 1] if spectrum.shape[1] > 1 else torch.zeros(len(spectrum)).double()
    return found


def white_tokens(num_tokens: int, channels: int, generator: torch.Generator) -> Tensor:
    """Independent standard normal tokens (N, C) in float64."""
    return torch.randn(num_tokens, channels, generator=generator, dtype=torch.float64)


def correlated_tokens(
    num_tokens: int, channels: int, generator: torch.Generator, *, window: int = 11, mean: float = 1.25
) -> Tensor:
    """Tokens (N, C) that resemble their neighbours and share a mean, as tokens of trained models do.

    White noise is averaged over `window` neighbours on a ring and scaled to variance 1; then one random token with
    standard deviation `mean` is added to all. The defaults are fitted to the ranks of a single known draw of such
    tokens. Raises ValueError if the window is larger than the number of tokens.
    """
    if not 1 <= window <= num_tokens:
        raise ValueError(f"window must be within 1..{num_tokens} tokens, got {window}")
    noise = white_tokens(num_tokens, channels, generator)
    smooth: Tensor = torch.stack([noise.roll(step, dims=0) for step in range(window)]).sum(0) / window**0.5
    return smooth + mean * white_tokens(1, channels, generator)


def projected(x: Tensor, generator: torch.Generator, *, orthogonal: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Values, queries and keys of tokens (B, N, C), projected by new random weights that keep their norm on average.

    Gaussian weights of variance 1 / C spread the singular values a little. `orthogonal` weights keep them, so that
    projections alone do not change them with depth.
    """
    weight = _orthogonal if orthogonal else _gaussian
    v, q, k = (x @ weight(x.shape[-1], generator) for _ in range(3))
    return v, q, k


def random_layers(x: Tensor, operators: Sequence[Mix], generator: torch.Generator, *, skip: bool) -> list[Tensor]:
    """Tokens (B, N, C) before, between and after random layers, one layer for each operator.

    Without `skip`, a layer is only the operator on orthogonally projected values, as in Dong et al. 2021. With `skip`,
    it is X + BRANCH_GAIN op(LayerNorm(X) W_V) W_O. The weights depend on the generator's state, not on the operators.
    """
    tokens = [x]
    for operator in operators:
        v, q, k = projected(layer_norm(x, x.shape[-1:]) if skip else x, generator, orthogonal=True)
        weight = _orthogonal(x.shape[-1], generator)
        x = x + BRANCH_GAIN * operator(v, q, k) @ weight if skip else operator(v, q, k)
        tokens.append(x)
    return tokens


def distances(x: Tensor) -> tuple[Tensor, Tensor]:
    """Distances of tokens (..., N, C) from the nearest `1 x^T` and the nearest `q a^T`, relative to |X|_F: twice (...).

    The second is never larger, because `1 x^T` has rank one too.
    """
    scale = torch.linalg.matrix_norm(x.double()).clamp_min(torch.finfo(torch.float64).tiny)
    equal, one_profile = (torch.linalg.matrix_norm(rest(x)) / scale for rest in (remove_token_mean, remove_profile))
    return equal, one_profile


def _gaussian(size: int, generator: torch.Generator) -> Tensor:
    weight: Tensor = white_tokens(size, size, generator) / size**0.5
    return weight


def _orthogonal(size: int, generator: torch.Generator) -> Tensor:
    q, r = torch.linalg.qr(white_tokens(size, size, generator))
    rotation: Tensor = q * r.diagonal().sign()  # uniform over rotations and reflections
    return rotation
