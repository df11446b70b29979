"""The compiled CPU backend: its threads, its limits and its library; test_permute_backends has its bits."""

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
from test_permute import assert_same_bits
from torch import Tensor

from sliceformer_lab.permute import backend, reference, shift_sort
from sliceformer_lab.permute.backend import Case

if "cpu" in backend.missing_backends():
    pytest.skip(backend.missing_backends()["cpu"], allow_module_level=True)

from sliceformer_lab.permute import cpu


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("num_tokens", "group_size"), [(4096, 2), (4096, 4096)])
def test_two_threads_give_the_bits_of_the_reference(num_tokens: int, group_size: int) -> None:
    torch.set_num_threads(2)
    v = torch.randn(1, num_tokens, 40, generator=torch.Generator().manual_seed(2))  # they share what is above 2**17
    case = Case(torch.arange(40), group_size, None, None, False)
    y, source = reference.BACKEND.forward(v, case, True)
    found, saved = cpu.BACKEND.forward(v, case, True)
    assert_same_bits(found, y)
    assert_same_bits(cpu.BACKEND.backward(v, saved, case), reference.BACKEND.backward(v, source, case))


def test_sixteen_bits_number_no_more_tokens_than_they_can() -> None:
    long = torch.zeros(1, 70000, 1, dtype=torch.bfloat16)
    reason = "it sorts up to 65536 tokens of torch.bfloat16"
    assert cpu.BACKEND.covers(long, Case(None, 70000, None, None, False)) == reason
    assert cpu.BACKEND.covers(long, Case(None, 300, None, None, False)) is None


def test_python_threads_do_not_share_memory() -> None:
    torch.manual_seed(4)
    case = Case(torch.randint(400, (16,)), 50, None, None, False)
    inputs = [torch.randn(1, 200, 16) for _ in range(40)]
    expected = [reference.BACKEND.forward(v, case, False)[0] for v in inputs]
    with ThreadPoolExecutor(4) as pool:
        for y, wanted in zip(pool.map(lambda v: cpu.BACKEND.forward(v, case, False)[0], inputs), expected, strict=True):
            assert_same_bits(y, wanted)


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


@pytest.mark.parametrize("saved", [torch.zeros(2, 8, 4, dtype=torch.int16), torch.zeros(0, dtype=torch.uint8)])
def test_saved_of_another_case_is_refused(saved: Tensor) -> None:
    with pytest.raises(ValueError, match="saved must be"):
        cpu.BACKEND.backward(torch.zeros(2, 8, 4), saved, Case(None, 8, None, None, False))


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
