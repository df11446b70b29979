"""The Triton backend: the same kernels in Triton's interpreter on the CPU and, with `pytest -m gpu`, on a GPU."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch
from support.devices import GPU
from test_permute import AWKWARD, assert_same_bits, awkward
from torch import Tensor

from sliceformer_lab.permute import missing_backends, shift_sort, use_backend

triton = pytest.importorskip("triton")

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
Run = Callable[..., Any]


def slow(length: int) -> Any:
    return pytest.param(length, marks=pytest.mark.slow)


KINDS = ["plain", "ties", "ragged", "down", "down_by_channel", "down_by_window", "reference", "reference_ragged"]
# (N, C, group_size) and the kinds of case tried there: every kind on small ones; then odd sizes, sizes that fill a
# power of two, and more pairs, windows, rows and channels than one program takes
SHAPES: dict[tuple[int, int, int | None], list[str]] = {
    (7, 3, 1): KINDS,
    (19, 3, 2): KINDS,
    (10, 4, 3): KINDS,
    (9, 3, None): KINDS,
    (1, 1, None): ["plain", "ragged"],
    (2, 1, None): ["down", "ragged"],
    (70, 65, 1): ["ragged", "ties"],
    (66, 65, 2): ["ragged", "down_by_window"],
    (70, 64, 8): ["ragged", "down_by_window"],
    (37, 5, 5): ["plain", "reference_ragged"],
    (64, 17, None): ["plain", "down_by_channel"],
    (300, 2, None): ["ties", "ragged"],
}


def permute(v: Tensor, cotangent: Tensor, backend: str, **options: Any) -> tuple[Tensor, Tensor]:
    """Result and gradient through the public function."""
    v = v.clone().requires_grad_()
    with use_backend(backend):
        y = shift_sort(v, **options)
        (gradient,) = torch.autograd.grad(y, v, cotangent)
    return y.detach(), gradient


def evaluate(v: Tensor, backend: str, **options: Any) -> Tensor:
    with use_backend(backend):
        return shift_sort(v, **options)


def refusal(v: Tensor, **options: Any) -> str:
    with pytest.raises(ValueError, match="backend triton") as caught:
        evaluate(v, "triton", **options)
    return str(caught.value)


def saved_bytes(v: Tensor, **options: Any) -> int:
    """Bytes kept for backward, those of the options left out."""
    sizes: list[int] = []
    kept = [option for option in options.values() if isinstance(option, Tensor)]

    def pack(tensor: Tensor) -> Tensor:
        if not any(tensor.data_ptr() == option.data_ptr() for option in kept):
            sizes.append(tensor.nbytes)
        return tensor

    with use_backend("triton"), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        shift_sort(v.clone().requires_grad_(), **options)
    return sum(sizes)


@pytest.fixture(scope="module", params=["interpreter", GPU])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Calls a function of this file where the Triton backend works: on a GPU, or in a process that interprets."""
    if request.param == "cuda":
        yield _on_gpu
        return
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")  # read when the kernels are imported
            pool.submit(os.getpid).result()
        yield lambda function, *args, **options: pool.submit(function, *args, **options).result()


def _on_gpu(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    moved = {name: o.cuda() if isinstance(o, Tensor) else o for name, o in options.items()}
    result = function(*(a.cuda() if isinstance(a, Tensor) else a for a in args), **moved)
    if isinstance(result, tuple):
        return tuple(part.cpu() for part in result)
    return result.cpu() if isinstance(result, Tensor) else result


def make_case(shape: tuple[int, int, int | None], kind: str, dtype: torch.dtype) -> tuple[Tensor, dict[str, Any]]:
    num_tokens, channels, group_size = shape
    generator = torch.Generator().manual_seed(list(SHAPES).index(shape) * len(KINDS) + KINDS.index(kind))
    v = torch.randn(2, num_tokens, channels, generator=generator)
    if kind != "plain":
        v = awkward(generator, *v.shape)
    lengths = torch.randint(1, num_tokens + 1, (2,), generator=generator) if "ragged" in kind else None
    windows = -(-num_tokens // (group_size or num_tokens))
    down = torch.rand(windows, channels, generator=generator) < 0.5
    return v.to(dtype), {
        "steps": torch.randint(2 * num_tokens, (channels,), generator=generator),
        "group_size": group_size,
        "lengths": lengths,
        "descending": {"down": True, "down_by_channel": down[0], "down_by_window": down}.get(kind, False),
        "reference": "reference" in kind,
    }


@pytest.mark.parametrize(
    "shape", [s if s != (66, 65, 2) else pytest.param(s, marks=pytest.mark.slow) for s in SHAPES], ids=str
)
def test_values_and_gradients_are_those_of_the_reference_in_every_kind_of_case(
    run: Run, shape: tuple[int, int, int | None]
) -> None:
    for kind, dtype in zip(SHAPES[shape], itertools.cycle(DTYPES), strict=False):
        v, options = make_case(shape, kind, dtype)
        cotangent = torch.randn(v.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        if (lengths := options["lengths"]) is not None:  # padding may hold anything
            padding = torch.arange(v.shape[1])[:, None] >= lengths[:, None, None]
            v, cotangent = v.masked_fill(padding, torch.nan), cotangent.masked_fill(padding, torch.nan)
        ours = run(permute, v, cotangent, "triton", **options)
        expected = permute(v, cotangent, "reference", **options)
        for got, wanted in zip(ours, expected, strict=True):
            assert_same_bits(got, wanted, kind)
        if kind == SHAPES[shape][0]:  # and without a gradient, where nothing is saved
            assert_same_bits(run(evaluate, v, "triton", **options), expected[0], kind)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("group_size", [2, 4])
def test_every_type_orders_zeros_infinities_and_nan_as_torch_does(
    run: Run, group_size: int, dtype: torch.dtype
) -> None:
    v = torch.cartesian_prod(*[torch.tensor(AWKWARD)] * 2).repeat(1, 2)[:, :group_size].T[None].to(dtype)
    for descending in (False, True):
        options = {"steps": None, "group_size": group_size, "descending": descending}
        assert_same_bits(run(evaluate, v, "triton", **options), evaluate(v, "reference", **options))


def test_backward_keeps_a_bit_for_a_pair_a_byte_for_a_small_window_and_two_for_a_large_one(run: Run) -> None:
    v = torch.randn(1, 512, 2)
    steps = torch.tensor([0, 3])
    for group_size, expected in ((1, 0), (2, v.numel() // 16), (256, v.numel()), (257, 2 * v.numel())):
        assert run(saved_bytes, v, steps=steps, group_size=group_size) == expected


def test_what_it_cannot_take_is_refused_with_the_reason(run: Run) -> None:
    v = torch.randn(1, 4, 2, dtype=torch.float64)
    assert "no keys for torch.float64" in run(refusal, v, steps=None, group_size=2)
    assert "up to 16,384 tokens, not 16,385" in run(refusal, torch.zeros(1, 16385, 1), steps=None, group_size=None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_backend_says_why_it_is_missing() -> None:
    if triton.knobs.runtime.interpret:
        pytest.skip("TRITON_INTERPRET is set")
    assert "no CUDA GPU" in missing_backends()["triton"]


def long_case(num_tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Values with ties, -0.0, NaN and infinities among normal ones, their cotangent, and shifts of ragged samples."""
    generator = torch.Generator().manual_seed(num_tokens)
    shape = (2, num_tokens, 20 if num_tokens <= 1024 else 3)  # more channels than one program takes
    v, cotangent = torch.randn(2, *shape, generator=generator)
    v = v.mul(20).round().div(20)
    v = torch.where(torch.rand(shape, generator=generator) < 0.1, awkward(generator, *shape), v)
    lengths = torch.tensor([num_tokens, num_tokens // 3 + 1])
    steps = torch.randint(2 * num_tokens, shape[2:], generator=generator)
    return v.to(dtype), cotangent.to(dtype), {"steps": steps, "lengths": lengths}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_tokens", [64, *map(slow, (1, 2, 3, 196, 1024, 4000, 4096, 8192, 10_000, 16_384))])
def test_sequences_of_any_length_are_those_of_the_reference(run: Run, num_tokens: int, dtype: torch.dtype) -> None:
    v, cotangent, options = long_case(num_tokens, dtype)
    for group_size in (1, 2, num_tokens // 2 + 1, None):
        ours = run(permute, v, cotangent, "triton", **options, group_size=group_size)
        expected = permute(v, cotangent, "reference", **options, group_size=group_size)
        for got, wanted in zip(ours, expected, strict=True):
            assert_same_bits(got, wanted)


def test_tiles_fit_registers_and_threads_for_every_window() -> None:
    from sliceformer_lab.permute import triton_kernels as kernels

    for size in (*range(3, 130), 1000, 4096, 4097, 16384):
        for channels, itemsize in ((1, 2), (3, 4), (512, 2), (512, 4)):
            tile = kernels.sort_tile(size, 16384, channels, itemsize)
            keys = (1 << (size - 1).bit_length()) * tile.rows * tile.columns
            of_thread = 32 if itemsize == 2 and size > 512 else 16
            assert keys <= (8192 if itemsize == 4 and size <= 8192 else 16384)
            assert tile.num_warps <= 32
            assert keys == 32 * of_thread * tile.num_warps or tile.num_warps == 1
