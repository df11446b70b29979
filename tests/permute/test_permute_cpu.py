"""The compiled CPU backend: every instruction set, dtype and layout against the reference, bit for bit."""

from __future__ import annotations

import _ctypes
import ctypes
import runpy
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sliceformer_lab.permute import backend, reference, shift_sort
from sliceformer_lab.permute.backend import Case

if "cpu" in backend.missing_backends():
    pytest.skip(backend.missing_backends()["cpu"], allow_module_level=True)

from sliceformer_lab.permute import cpu

BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SPECIAL = (0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 1e-40)
KERNELS = [cpu.CpuBackend(cpu.BACKEND.library, isa) for isa in cpu.BACKEND.isas]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=KERNELS, ids=lambda kernel: kernel.isa)
def kernel(request: pytest.FixtureRequest) -> cpu.CpuBackend:
    return request.param


def values(shape: tuple[int, ...], dtype: torch.dtype, kind: str) -> Tensor:
    if kind == "normal":
        return torch.randn(shape).to(dtype)
    if kind == "ties":
        return torch.randint(-2, 3, shape).to(dtype)
    v = torch.tensor(SPECIAL)[torch.randint(len(SPECIAL), shape)].to(dtype)
    bits = v.view(BITS[v.element_size()])
    payload = torch.randint(2, shape) | torch.where(torch.rand(shape) < 0.5, torch.iinfo(bits.dtype).min, 0)
    return torch.where(v.isnan(), bits | payload.to(bits.dtype), bits).view(dtype)  # NaN with payloads


def make_case(
    shape: tuple[int, int, int],
    group_size: int,
    steps: str = "random",
    ragged: bool = False,
    order: str = "up",
    align: bool = False,
) -> Case:
    num_samples, num_tokens, num_channels = shape
    shifts = {"none": None, "random": torch.randint(2 * num_tokens, (num_channels,))}
    shifts["equal"] = torch.full((num_channels,), num_tokens // 3)
    step = shifts[steps]
    if align and step is not None:
        step = step * (torch.arange(num_channels) > 0)
    windows = {"up": None, "down": 1, "windows": -(-num_tokens // group_size)}[order]
    return Case(
        steps=step,
        group_size=group_size,
        lengths=torch.randint(1, num_tokens + 1, (num_samples,)) if ragged else None,
        descending=None if windows is None else torch.rand(windows, num_channels) < 0.5,
        reference=align,
    )


def assert_bits_equal(actual: Tensor, expected: Tensor) -> None:
    integers = BITS[expected.element_size()]
    assert actual.is_contiguous()
    torch.testing.assert_close(actual.view(integers), expected.contiguous().view(integers), rtol=0, atol=0)


def assert_like_reference(kernel: cpu.CpuBackend, v: Tensor, case: Case) -> None:
    y, source = reference.BACKEND.forward(v, case, True)
    trained, saved = kernel.forward(v, case, True)
    assert_bits_equal(trained, y)
    assert_bits_equal(kernel.forward(v, case, False)[0], y)
    assert (tuple(saved.shape), saved.dtype) == kernel.saved_layout(v, case)
    for dtype in (v.dtype, torch.float32):
        grad = torch.randn(v.shape).to(dtype)
        assert_bits_equal(kernel.backward(grad, saved, case), reference.BACKEND.backward(grad, source, case))


SHAPES = [(1, 1, 1), (2, 2, 3), (2, 5, 16), (1, 16, 33), (2, 37, 40), (1, 130, 17), (1, 300, 9)]


@pytest.mark.parametrize("kind", ["normal", "ties", "special"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_shape_and_group_equals_the_reference(kernel: cpu.CpuBackend, dtype: torch.dtype, kind: str) -> None:
    torch.manual_seed(0)
    for shape in SHAPES:
        for size in sorted({min(shape[1], size) for size in (1, 2, 3, 4, 7, 9, 17, 64, 257, shape[1])}):
            assert_like_reference(kernel, values(shape, dtype, kind), make_case(shape, size))


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("order", ["up", "down", "windows"])
@pytest.mark.parametrize("steps", ["none", "random", "equal"])
def test_every_option_equals_the_reference(
    kernel: cpu.CpuBackend, steps: str, order: str, ragged: bool, align: bool
) -> None:
    torch.manual_seed(1)
    shape = (2, 45, 36)
    for size in (1, 2, 5, 20, 45):
        for kind in ("ties", "special"):
            case = make_case(shape, size, steps, ragged, order, align)
            assert_like_reference(kernel, values(shape, torch.float32, kind), case)


@pytest.mark.parametrize(
    ("num_tokens", "group_size", "threads"), [(4096, 2, 2), (4096, 300, 1), (4096, 4096, 2), (16384, 16384, 1)]
)
def test_long_sequences_equal_the_reference(
    kernel: cpu.CpuBackend, num_tokens: int, group_size: int, threads: int
) -> None:
    torch.manual_seed(2)
    torch.set_num_threads(threads)
    shape = (1, num_tokens, 40 if num_tokens == 4096 else 20)  # two threads share what is above 2**17 elements
    assert_like_reference(kernel, torch.randn(shape), make_case(shape, group_size))


def test_tokens_beyond_16_bits_have_a_wide_index(kernel: cpu.CpuBackend) -> None:
    torch.manual_seed(3)
    shape = (1, 40000, 2)
    v, case = torch.randn(shape), make_case(shape, 40000)
    assert kernel.saved_layout(v, case)[1] == torch.int32
    assert_like_reference(kernel, v, case)
    long = torch.zeros(1, 70000, 1, dtype=torch.bfloat16)
    assert kernel.covers(long, Case(None, 70000, None, None, False)) == "it sorts up to 65536 tokens of torch.bfloat16"
    assert kernel.covers(long, Case(None, 300, None, None, False)) is None


@pytest.mark.parametrize(("group_size", "bytes_each"), [(1, 0), (2, 1 / 16), (256, 1), (512, 2)])
def test_backward_needs_few_bytes_an_element(group_size: int, bytes_each: float) -> None:
    v = torch.randn(2, 512, 32)
    saved = cpu.BACKEND.forward(v, Case(None, group_size, None, None, False), True)[1]
    assert saved.nbytes == bytes_each * v.numel()


def test_python_threads_do_not_share_memory() -> None:
    torch.manual_seed(4)
    shape = (1, 200, 16)
    case = make_case(shape, 50)
    inputs = [torch.randn(shape) for _ in range(40)]
    expected = [reference.BACKEND.forward(v, case, False)[0] for v in inputs]
    with ThreadPoolExecutor(4) as pool:
        for y, wanted in zip(pool.map(lambda v: cpu.BACKEND.forward(v, case, False)[0], inputs), expected, strict=True):
            assert_bits_equal(y, wanted)


@pytest.mark.parametrize(
    ("v", "case"),
    [
        (torch.zeros(2, 8, 4).transpose(1, 2), Case(None, 2, None, None, False)),
        (torch.zeros(2, 8, 4, dtype=torch.int32), Case(None, 2, None, None, False)),
        (torch.zeros(2, 8, 4), Case(torch.zeros(3, dtype=torch.int64), 2, None, None, False)),
        (torch.zeros(2, 8, 4), Case(torch.zeros(4, dtype=torch.int32), 2, None, None, False)),
        (torch.zeros(2, 8, 4), Case(torch.full((4,), -1), 2, None, None, False)),
        (torch.zeros(2, 8, 4), Case(None, 2, torch.tensor([8, 9]), None, False)),
        (torch.zeros(2, 8, 4), Case(None, 2, torch.tensor([0, 8]), None, False)),
        (torch.zeros(2, 8, 4), Case(None, 9, None, None, False)),
        (torch.zeros(2, 8, 4), Case(None, 2, None, torch.zeros(3, 4, dtype=torch.bool), False)),
    ],
)
def test_arguments_outside_the_arrays_are_refused(v: Tensor, case: Case) -> None:
    with pytest.raises(ValueError, match="must be"):
        cpu.BACKEND.forward(v, case, True)


def test_saved_of_another_case_is_refused() -> None:
    with pytest.raises(ValueError, match="saved must be"):
        cpu.BACKEND.backward(
            torch.zeros(2, 8, 4), torch.zeros(2, 8, 4, dtype=torch.int16), Case(None, 8, None, None, False)
        )


def test_a_missing_or_foreign_library_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="the extension is not built; `pip install"):
        cpu.open_library(tmp_path / "absent.so")
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(ImportError, match="does not load"):
        cpu.open_library(tmp_path / "text.so")
    with pytest.raises(ImportError, match="does not load"):
        cpu.open_library(Path(_ctypes.__file__))  # a library without our functions


def test_without_the_extension_the_plain_path_runs_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"{name} is gone")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.delitem(sys.modules, cpu.__name__)
    backend._load.cache_clear()
    backend._log_once.cache_clear()
    try:
        for _ in range(2):
            y = shift_sort(torch.tensor([[[2.0], [1.0]]]), None, group_size=2)
            assert y.flatten().tolist() == [1.0, 2.0]
        (warning,) = (record.message for record in caplog.records if record.levelname == "WARNING")
        assert warning.startswith("shift_sort runs on cpu without backend cpu: the extension does not load")
        assert "cpu" not in backend.available_backends()
        assert "is gone); `pip install -e .` with a C++ compiler builds it" in backend.missing_backends()["cpu"]
    finally:
        backend._load.cache_clear()


@pytest.mark.parametrize("isa", cpu.BACKEND.isas)
def test_environment_picks_the_instruction_set(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICEFORMER_ISA", isa)
    assert runpy.run_module(cpu.__name__)["BACKEND"].isa == isa


def test_unknown_instruction_set_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICEFORMER_ISA", "avx9")
    with pytest.raises(ValueError, match="SLICEFORMER_ISA is 'avx9', but this machine has portable"):
        runpy.run_module(cpu.__name__)
