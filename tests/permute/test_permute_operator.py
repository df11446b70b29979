"""shift_sort as an operator of torch: compiled, transformed, traced, and as modes see it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.devices import DEVICES
from test_permute_backends import ISAS, RUNS, every_device
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from sliceformer_lab.config.compose import load_option
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.permute import shift_sort, use_backend


@pytest.mark.parametrize(("backend", "device"), [run for run in RUNS if run not in RUNS[1 : len(ISAS)]])  # one ISA
@pytest.mark.parametrize(("group_size", "lengths"), [(2, None), (7, [7, 3])], ids=str)
def test_operators_pass_the_checks_of_torch(
    backend: str, device: str, lengths: list[int] | None, group_size: int
) -> None:
    v = torch.randn(2, 7, 3, device=device, requires_grad=True)
    steps, down = torch.tensor([0, 1, 9], device=device), torch.tensor([[True, False, True]], device=device)
    given = (
        steps,
        None if lengths is None else torch.tensor(lengths, device=device),
        down,
        group_size,
        False,
        backend.split()[0],
    )
    torch.library.opcheck(torch.ops.sliceformer_lab.shift_sort.default, (v, *given, True))
    y, saved = torch.ops.sliceformer_lab.shift_sort(v, *given, True)
    grad = torch.randn_like(y, requires_grad=True)
    torch.library.opcheck(torch.ops.sliceformer_lab.shift_sort_backward.default, (grad, saved.detach(), *given))


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The names of the operations that are dispatched inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@every_device
def test_a_call_is_seen_as_one_operation_and_its_gradient_as_another(device: str) -> None:
    v, cotangent = torch.randn(2, 8, 4, device=device), torch.randn(2, 8, 4, device=device)
    ours = "sliceformer_lab::shift_sort"
    with Operations() as seen:
        shift_sort(v, None, group_size=2)
        assert seen.names == [ours]
        y = shift_sort(v.requires_grad_(), None, group_size=2)
        torch.autograd.grad(y, v, cotangent)
    assert seen.names == [ours, ours, f"{ours}_backward"]


@pytest.mark.filterwarnings("ignore:.*jit.trace", "ignore::torch.jit.TracerWarning")
def test_torch_jit_traces_the_operator_where_a_gradient_is_needed() -> None:
    v = torch.randn(2, 8, 4, requires_grad=True)
    traced = torch.jit.trace(lambda x: shift_sort(x, None, group_size=2), v, check_trace=False)
    assert traced.graph.findNode("sliceformer_lab::shift_sort") is not None
    torch.testing.assert_close(torch.autograd.grad(traced(v).sum(), v)[0], torch.ones_like(v))


class NoGradient(torch.autograd.Function):
    """The values, with no gradient rather than one of zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        del ctx, grad


def test_a_result_without_a_gradient_gives_none_to_the_values() -> None:
    v = torch.randn(2, 8, 4, requires_grad=True)
    total = NoGradient.apply(shift_sort(v, None, group_size=2)).sum() + v.sum()
    torch.testing.assert_close(torch.autograd.grad(total, v)[0], torch.ones_like(v))


@pytest.mark.parametrize(
    ("device", "compiler"),
    [
        ("cpu", "aot_eager"),
        pytest.param("cpu", "inductor", marks=pytest.mark.slow),
        pytest.param("cuda", "inductor", marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize("attention", ["csp", pytest.param("sliceformer", marks=pytest.mark.slow)])
def test_a_compiled_encoder_is_one_graph_at_every_length(device: str, compiler: str, attention: str) -> None:
    torch._dynamo.reset()
    shallow = load_option("encoder", "tiny") | {"depth": 1}
    encoder = build_encoder(shallow, load_option("block", "vit"), load_option("attention", attention), 32).to(device)
    width = next(encoder.parameters()).shape[-1]
    compiled = torch.compile(encoder, fullgraph=True, backend=compiler)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if device == "cuda" else {}  # its sums have another order
    for num_tokens in (32, 20):
        x = torch.randn(2, num_tokens, width, device=device)
        ours = torch.autograd.grad(compiled(x).square().sum(), list(encoder.parameters()))
        theirs = torch.autograd.grad(encoder(x).square().sum(), list(encoder.parameters()))
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_a_compiled_function_follows_the_forced_backend() -> None:
    seen = []
    v = torch.randn(2, 8, 4, requires_grad=True)
    compiled = torch.compile(lambda x: shift_sort(x, None, group_size=None), fullgraph=True, backend="aot_eager")
    for name in ("plain", "reference"):
        with (
            use_backend(name),
            torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.dtype) or t, lambda t: t),
        ):
            compiled(v)
    assert seen == [torch.uint8, torch.int64]


@pytest.mark.parametrize("group_size", [2, None])
def test_transforms_of_torch_func_see_the_permutation(group_size: int | None) -> None:
    v, tangent = torch.randn(3, 7, 4), torch.randn(3, 7, 4)
    options = {"steps": torch.arange(4), "group_size": group_size, "lengths": torch.tensor([7, 2, 5])}

    def run(x: Tensor) -> Tensor:
        return shift_sort(x, **options)

    expected, gradient = torch.autograd.functional.vjp(run, v, tangent)
    jacobian = torch.autograd.functional.jacobian(run, v)
    pushed = (jacobian * tangent).sum(dim=(3, 4, 5))
    torch.testing.assert_close(torch.func.jvp(run, (v,), (tangent,)), (expected, pushed))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(run(forward_ad.make_dual(v, tangent)))
        torch.testing.assert_close((dual.primal, dual.tangent), (expected, pushed))
    torch.testing.assert_close(torch.func.grad(lambda x: (run(x) * tangent).sum())(v), gradient)
    if torch.__version__ >= "2.12":  # 2.11 cannot batch the view of a float as an integer
        torch.testing.assert_close(torch.func.vmap(run)(torch.stack([v, v])), torch.stack([expected, expected]))


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_leaves_the_type_of_values_alone(device: str) -> None:
    v = torch.randn(2, 8, 4, requires_grad=True, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert shift_sort(v, None, group_size=2).dtype == torch.float32
        assert shift_sort(v.bfloat16(), None, group_size=2).dtype == torch.bfloat16
