"""Every backend of shift_sort that this machine has against the reference, bit for bit, and how one is chosen."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.devices import DEVICES
from test_permute import BITS, assert_same_bits, awkward, calls
from torch import Tensor

from sliceformer_lab.permute import available_backends, missing_backends, plain, shift_sort, use_backend
from sliceformer_lab.permute import backend as choice

# Triton's interpreter, which runs its kernels without a GPU, is too slow for these sizes: see test_permute_triton.
ISAS = getattr(choice.load_backend("cpu"), "isas", ()) if "cpu" in available_backends() else ()
BACKENDS = {"cpu": ["plain", *(f"cpu {isa}" for isa in ISAS)], "cuda": ["plain", "triton"]}
RUNS: list[Any] = [(name, "cpu") for name in BACKENDS["cpu"]]
RUNS += [pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in BACKENDS["cuda"]]
every_backend = pytest.mark.parametrize(("backend", "device"), RUNS)
every_device = pytest.mark.parametrize("device", DEVICES)


@contextmanager
def using(backend: str) -> Iterator[None]:
    """Forces a backend, such as `plain`, or `cpu avx2` with an instruction set."""
    name, _, isa = backend.partition(" ")
    with use_backend(name), pytest.MonkeyPatch.context() as patch:
        if isa:
            patch.setattr(choice.load_backend(name), "isa", isa)
        yield


def takes(backend: str, v: Tensor, group_size: int | None) -> bool:
    case = choice.Case(None, min(group_size or v.shape[1], v.shape[1]), None, None, False)
    return choice.load_backend(backend.partition(" ")[0]).covers(v, case) is None


def outcome(
    backend: str, device: str, *, v: Tensor, steps: Tensor | None, cotangent: Tensor, **options: Any
) -> list[Tensor]:
    """Result and gradient in training, and the result without a gradient."""
    options = {key: value.to(device) if isinstance(value, Tensor) else value for key, value in options.items()}
    steps = None if steps is None else steps.to(device)
    v = v.to(device).detach().requires_grad_()
    with using(backend):
        y = shift_sort(v, steps, **options)
        (gradient,) = torch.autograd.grad(y, v, cotangent.to(device))
        inferred = shift_sort(v.detach(), steps, **options)
    assert y.is_contiguous()
    return [y.detach().cpu(), gradient.cpu(), inferred.cpu()]


def assert_backends_equal_reference(device: str, call: dict[str, Any]) -> None:
    """Each backend of a device that takes a call gives the bits of the reference; plain takes every one."""
    expected = outcome("reference", "cpu", **call)
    for backend in BACKENDS[device]:
        if takes(backend, call["v"].to(device), call["group_size"]):
            for ours, theirs in zip(outcome(backend, device, **call), expected, strict=True):
                assert_same_bits(ours, theirs, backend)
        else:
            assert backend != "plain"


@every_device
@pytest.mark.parametrize("group_sizes", [(1,), (2,), (3, 4, 7, 8), (9, 20, 300, None)], ids=str)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_values_and_gradients_equal_the_reference(
    device: str, group_sizes: tuple[int | None, ...], data: st.DataObject
) -> None:
    tokens = st.one_of(st.integers(1, 12), st.sampled_from([16, 31, 64, 100, 257]))
    assert_backends_equal_reference(device, data.draw(calls(group_sizes, tokens, (1, 2, 5, 16, 19, 37))))


@every_device
@pytest.mark.parametrize("group_size", [2, 4, 300, None])
@pytest.mark.parametrize("dtype", list(BITS), ids=str)
def test_long_sequences_equal_the_reference(device: str, group_size: int | None, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(2, 1030, 70, generator=generator).mul(20).round().to(dtype)  # ties, and -0.0
    v[0] = v[0].abs() + 0.5  # a sample without -0.0
    call = {
        "v": v,
        "cotangent": torch.randn(v.shape, generator=generator).to(dtype),
        "steps": torch.randint(0, 3000, (70,), generator=generator),
        "group_size": group_size,
    }
    for lengths in (None, torch.tensor([1030, 517])):
        assert_backends_equal_reference(device, call | {"lengths": lengths})


@pytest.mark.parametrize("group_size", [1, 2, 3, 20, None])
@pytest.mark.parametrize("reference", [False, True])
def test_a_call_in_parts_equals_the_reference(
    group_size: int | None, reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "_VALUES_PER_STEP", 40)  # a sample and 16 channels at a time
    generator = torch.Generator().manual_seed(0)
    v = awkward(generator, 3, 25, 50)
    call = {
        "v": v,
        "cotangent": torch.randn(v.shape, generator=generator),
        "steps": torch.randint(0, 30, (50,), generator=generator),
        "group_size": group_size,
        "descending": torch.rand(-(-25 // (group_size or 25)), 50, generator=generator) < 0.5,
        "reference": reference,
    }
    for lengths in (None, torch.tensor([25, 11, 1])):
        assert_backends_equal_reference("cpu", call | {"lengths": lengths})


@every_device
@pytest.mark.parametrize("num_tokens", [33_000, 70_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sequences_beyond_16_bits_equal_the_reference(device: str, num_tokens: int, dtype: torch.dtype) -> None:
    v = torch.randn(1, num_tokens, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    call = {"v": v, "cotangent": v.flip(1), "steps": torch.tensor([0, 7]), "group_size": None}
    assert_backends_equal_reference(device, call)


@every_device
@pytest.mark.parametrize("group_size", [1, 2, 3, None])
def test_strided_values_and_gradients_equal_the_reference(device: str, group_size: int | None) -> None:
    whole = torch.randn(4, 26, 38, generator=torch.Generator().manual_seed(0))
    views = [whole[::2, ::2, ::2], whole.transpose(0, 2), whole.flip(1)[:, :, 1:20], whole[:1, :, :1].expand(3, 26, 5)]
    for view in views:
        steps = torch.arange(view.shape[2]) * 3
        for cotangent in (torch.randn(view.mT.shape).mT, torch.ones(()).expand(view.shape)):
            call = {"v": view, "cotangent": cotangent, "steps": steps, "group_size": group_size}
            assert_backends_equal_reference(device, call)


@every_backend
@pytest.mark.parametrize("shape", [(0, 8, 4), (2, 0, 4), (2, 8, 0)], ids=str)
def test_empty_values_give_an_empty_result(backend: str, device: str, shape: tuple[int, ...]) -> None:
    v = torch.zeros(shape, device=device, requires_grad=True)
    with using(backend):
        y = shift_sort(v, torch.zeros(shape[2], dtype=torch.int64, device=device), group_size=2)
    (gradient,) = torch.autograd.grad(y.sum(), v)
    assert y.shape == gradient.shape == shape


@every_device
@pytest.mark.parametrize("group_size", [1, 2, 5, None])
def test_second_derivatives_follow_the_permutation(device: str, group_size: int | None) -> None:
    options = {"group_size": group_size, "lengths": torch.tensor([7, 4], device=device)}
    steps, weight = torch.tensor([1, 9, 3], device=device), torch.randn(2, 7, 3, device=device)

    def gradient_of_gradient(name: str) -> Tensor:
        v = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
        with using(name):
            (first,) = torch.autograd.grad((shift_sort(v, steps, **options) ** 3).sum(), v, create_graph=True)
            return torch.autograd.grad((first * weight).sum(), v)[0]

    expected = gradient_of_gradient("reference")
    assert expected.any()
    for backend in BACKENDS[device]:
        assert_same_bits(gradient_of_gradient(backend), expected, backend)


def test_second_derivatives_ask_the_backend_that_the_type_of_the_values_chose() -> None:
    v = torch.randn(1, 70000, 1, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()

    def gradient_of_gradient() -> Tensor:
        moved = shift_sort(v, torch.tensor([3]), group_size=69999)  # windows too long for backend cpu in this type
        (first,) = torch.autograd.grad((moved**3).sum(), v, create_graph=True)
        return torch.autograd.grad((first * v.detach().flip(1)).sum(), v)[0]

    with use_backend("reference"):
        expected = gradient_of_gradient()
    assert_same_bits(gradient_of_gradient(), expected)


def test_reference_has_second_derivatives() -> None:
    v = torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)
    for group_size in (1, 2, None):

        def squared(x: Tensor, group_size: int | None = group_size) -> Tensor:
            return shift_sort(x, torch.tensor([1, 2]), group_size=group_size, lengths=torch.tensor([5, 3])) ** 2

        with use_backend("reference"):
            assert torch.autograd.gradcheck(squared, v)
            assert torch.autograd.gradgradcheck(squared, v)


# What is kept for a gradient


def saved_bytes_per_value(v: Tensor, group_size: int | None) -> float:
    sizes = []
    steps = torch.arange(v.shape[2], device=v.device)

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(0 if tensor.data_ptr() == steps.data_ptr() else tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        shift_sort(v, steps, group_size=group_size)
    return sum(sizes) / v.numel()


@every_backend
def test_a_gradient_needs_half_a_byte_one_or_two_per_value(backend: str, device: str) -> None:
    v = torch.randn(2, 512, 32, device=device, requires_grad=True)
    with using(backend):
        assert saved_bytes_per_value(v, 1) == 0
        assert saved_bytes_per_value(v, 2) <= 0.5
        assert saved_bytes_per_value(v, 256) <= 1
        assert saved_bytes_per_value(v, None) <= 2


def test_a_backend_saves_only_if_a_gradient_may_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def forward(self: plain.Plain, v: Tensor, case: choice.Case, save: bool) -> tuple[Tensor, Tensor]:
        seen.append(save)
        return forward_before(self, v, case, save)

    forward_before = plain.Plain.forward
    monkeypatch.setattr(plain.Plain, "forward", forward)
    v = torch.randn(2, 8, 4)
    with use_backend("plain"):
        shift_sort(v, None, group_size=2)
        shift_sort(v.requires_grad_(), None, group_size=2)
        with torch.no_grad():
            shift_sort(v, None, group_size=2)
    assert seen == [False, True, False]


def test_cached_shifts_stay_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_cache", type(plain._cache)())
    monkeypatch.setattr(plain, "_CACHED_BYTES", 3 * 4 * 8 * 4)  # three samples of 8 tokens and 4 channels
    v = torch.randn(2, 8, 4)
    for step in (0, 1, 2, 0, 3):
        steps = torch.full((4,), step)
        with use_backend("plain"):
            assert torch.equal(shift_sort(v, steps, group_size=1), v.roll(step, 1))
    remembered = [int(torch.frombuffer(bytearray(key[1]), dtype=torch.int64)[0]) for key in plain._cache]
    assert remembered == [2, 0, 3]


# Choice


def test_reference_and_plain_are_always_there() -> None:
    assert available_backends()[:2] == ("reference", "plain")
    assert set(available_backends()) | set(missing_backends()) == set(choice.NAMES)


def test_a_backend_that_does_not_exist_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="no backend 'cuda'; choose from reference, plain, cpu, triton"),
        use_backend("cuda"),
    ):
        pass


def test_a_backend_that_this_machine_lacks_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_load", lambda name: "the moon is full" if name == "cpu" else "absent")
    with pytest.raises(ValueError, match="backend cpu cannot run here: the moon is full"), use_backend("cpu"):
        pass


def test_a_forced_backend_ends_with_its_block_even_after_an_error() -> None:
    with use_backend("reference"):
        with pytest.raises(KeyError), use_backend("plain"):
            raise KeyError
        assert choice.forced_backend() == "reference"
    assert choice.forced_backend() is None


class Fussy(plain.Plain):
    """The plain backend for short sequences only."""

    name = "fussy"

    def covers(self, v: Tensor, case: choice.Case) -> str | None:
        return None if v.shape[1] <= 4 else f"{v.shape[1]} tokens are too many for it"


@pytest.fixture
def fussy(monkeypatch: pytest.MonkeyPatch) -> None:
    backends = {"fussy": Fussy(), "plain": plain.BACKEND}
    monkeypatch.setattr(choice, "NAMES", tuple(backends))
    monkeypatch.setattr(choice, "_load", lambda name: backends[name])
    monkeypatch.setattr(choice, "_KERNELS", {"cpu": "fussy"})


@pytest.mark.usefixtures("fussy")
def test_a_forced_backend_refuses_a_case_that_it_does_not_take() -> None:
    with use_backend("fussy"):
        shift_sort(torch.zeros(1, 4, 2), None, group_size=2)
        with pytest.raises(ValueError, match="backend fussy does not take this case: 5 tokens are too many for it"):
            shift_sort(torch.zeros(1, 5, 2), None, group_size=2)


@pytest.mark.usefixtures("fussy")
def test_a_case_that_the_kernel_does_not_take_runs_on_plain_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    case = choice.Case(None, 2, None, None, False)
    assert choice.choose(torch.zeros(1, 4, 2), case, None).name == "fussy"
    with caplog.at_level(logging.DEBUG):
        for _ in range(2):
            assert choice.choose(torch.zeros(1, 5, 2), case, None).name == "plain"
    reason = "shift_sort runs on cpu without backend fussy: 5 tokens are too many for it"
    assert [record.getMessage() for record in caplog.records] == [reason]


def test_devices_without_a_kernel_use_plain() -> None:
    case = choice.Case(None, 2, None, None, False)
    assert choice.choose(torch.zeros(1, 4, 2, device="meta"), case, None).name == "plain"
    assert shift_sort(torch.zeros(1, 4, 2, device="meta"), None, group_size=2).shape == (1, 4, 2)
