"""The parts of the benchmark: fair peers, what is planned, what is measured, and what is made of it."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.benchmark_rows import made_row

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.csp import CSP
from sliceformer_lab.attention.linformer import Linformer
from sliceformer_lab.attention.sliceformer import Sliceformer
from sliceformer_lab.batch import Padding
from sliceformer_lab.commands.benchmark import contenders, contest, peers, run_suite
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.comparisons import SpeedComparison, Variant, Workload, comparisons
from sliceformer_lab.commands.benchmark.contest import run_contest
from sliceformer_lab.commands.benchmark.process import ProcessEndedError, in_child
from sliceformer_lab.commands.benchmark.rows import SpeedRow, set_ratios
from sliceformer_lab.commands.benchmark.speed_tables import print_speed_tables
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.measures import call_cost
from sliceformer_lab.permute import shift_sort
from sliceformer_lab.permute.backend import forced_backend

pytestmark = pytest.mark.usefixtures("in_this_process")

SPEC = LayerSpec(dim=16, num_heads=4, max_len=12)


def row(name: str, rounds: list[float], **facts: object) -> SpeedRow:
    """A row of a layer at N=64, measured; `facts` in place of what is made up here."""
    seconds, q1, q3 = call_cost.quartiles(rounds) if rounds else (None, None, None)
    made = {"engine": "plain", "against": "mha (fused)", "parameters": 100, "peak_bytes": 1000}
    made |= {"seconds": seconds, "seconds_q1": q1, "seconds_q3": q3, "rounds": rounds, "saved_bytes_per_element": 4.0}
    return made_row(name, **{**made, **facts})


# peers


@pytest.mark.parametrize(("group_size", "shifts"), [(1, True), (2, True), (4, True), (12, False)])
def test_only_sorts_inside_groups_are_timed_with_a_shift_and_move_what_the_published_code_moves(
    group_size: int, shifts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[torch.Tensor | None] = []

    def recording(v: torch.Tensor, steps: torch.Tensor | None, **options: Any) -> torch.Tensor:
        given.append(steps)
        return shift_sort(v, steps, **options)

    monkeypatch.setattr(contenders, "shift_sort", recording)
    options, workload = BenchmarkOptions(), Workload("sort", "operator", 12, 2, 8, group_size=group_size)
    ours, csp, complete = (
        contenders.build(Variant(name), workload, options).infer()
        for name in ("shift_sort", "published_csp", "published_sliceformer")
    )
    assert [steps is not None for steps in given] == [shifts]
    torch.testing.assert_close(ours, csp if shifts else complete)


def test_fused_plain_and_torchs_softmax_attention_agree() -> None:
    torch.manual_seed(0)
    fused, plain, torchs = peers.FusedSoftmax(SPEC), peers.PlainSoftmax(SPEC), peers.TorchMHA(SPEC)
    plain.load_state_dict(fused.state_dict())
    inner = {"in_proj_weight": fused.value.weight, "in_proj_bias": fused.value.bias}
    inner |= {"out_proj.weight": fused.out.weight, "out_proj.bias": fused.out.bias}
    torchs.inner.load_state_dict(inner)
    x = torch.randn(2, 12, 16)
    torch.testing.assert_close(plain(x), fused(x))
    torch.testing.assert_close(torchs(x), fused(x))
    padding = Padding.from_lengths(torch.tensor([5, 12]), 12)
    torch.testing.assert_close(plain(x, padding), fused(x, padding))
    torch.testing.assert_close(fused(x, padding)[0, :5], fused(x[:1, :5])[0])
    counts = [sum(p.numel() for p in layer.parameters()) for layer in (fused, plain, torchs)]
    assert len(set(counts)) == 1


@pytest.mark.parametrize(
    ("published", "ours"),
    [(peers.PublishedCSP(SPEC), CSP(SPEC)), (peers.PublishedSliceformer(SPEC), Sliceformer(SPEC))],
    ids=["csp", "sliceformer"],
)
def test_published_code_gives_the_same_values_and_gradients(published: torch.nn.Module, ours: torch.nn.Module) -> None:
    published.load_state_dict(ours.state_dict())
    x = torch.randn(3, 12, 16, generator=torch.Generator().manual_seed(1))
    grads = []
    for layer in (published, ours):
        y = layer(x)
        y.square().sum().backward()
        grads.append([y, *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*grads)


# measures


class Stopwatch:
    """In place of a CUDA event: the GPU's clock, in milliseconds."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = Stopwatch.now

    def elapsed_time(self, end: Stopwatch) -> float:
        return end.at - self.at


def test_time_on_a_gpu_is_that_of_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(torch.cuda, "Event", Stopwatch)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(Stopwatch.now))

    def call() -> None:
        Stopwatch.now += 2.5

    assert call_cost.in_turns({"a": call}, rounds=3, warmup=1, device="cuda") == {"a": [pytest.approx(2.5e-3)] * 3}
    assert len(waits) == 8  # before and after each of four measurements


def test_bandwidth_is_that_of_values_read_and_written_once_and_wrong_values_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = BenchmarkOptions(rounds=2, warmup=1, dtype="bfloat16")
    variants = published, copy, _ = Variant("published_csp"), Variant("copy"), Variant("shift_sort", "plain")
    work = Workload("operator G=2", "operator", 64, 2, 8, group_size=2)
    monkeypatch.setattr(contenders, "shift_sort", lambda v, *_, **__: v.clone())
    rows = run_contest(SpeedComparison(work, variants, published), options)
    forward = [row for row in rows if row.mode == "inference"]
    assert [row.bytes_per_second for row in forward] == pytest.approx([2 * 2 * 1024 / row.seconds for row in forward])
    assert all(row.bytes_per_second is None for row in rows if row.mode == "training")
    assert contenders.build(copy, work, options).infer().dtype == torch.bfloat16
    assert [row.equal for row in forward] == [True, None, False]


def test_a_call_has_its_mode_and_backend_and_starts_from_empty_gradients() -> None:
    layer, seen = torch.nn.Linear(4, 4), []
    layer.register_forward_hook(lambda *_: seen.append((layer.training, torch.is_grad_enabled(), forced_backend())))
    contender = contenders.Contender(layer, (torch.ones(1, 4),), layer, backend="plain")
    contender.prepare("inference")()
    contender.prepare("training")()
    assert seen == [(False, False, "plain"), (True, True, "plain")]
    once = layer.weight.grad.clone()
    contender.train()
    torch.testing.assert_close(layer.weight.grad, once)


@pytest.mark.parametrize(
    ("operation", "kernel"),
    {
        "aten::_scaled_dot_product_flash_attention": "flash",
        "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
        "aten::_scaled_dot_product_efficient_attention": "efficient",
        "aten::_scaled_dot_product_cudnn_attention": "cudnn",
        "aten::mm": "",
    }.items(),
)
def test_kernel_of_softmax_attention_is_read_from_its_operation(operation: str, kernel: str) -> None:
    assert contest._softmax_kernel({"aten::view", operation}) == kernel


def test_all_calls_take_turns_in_every_round() -> None:
    seen: list[str] = []
    times = call_cost.in_turns(
        {name: lambda name=name: seen.append(name) or torch.ones(200, 200) @ torch.ones(200, 200) for name in "abc"},
        rounds=4,
        warmup=2,
        device="cpu",
    )
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 4, "b": 4, "c": 4}
    assert all(second > 0 for seconds in times.values() for second in seconds)
    turns = [name for before, name in zip(["", *seen], seen, strict=False) if name != before]
    assert seen[:6] == ["a", "b", "c"] * 2
    assert max(turns[6:].count(name) for name in "abc") <= 4  # one stretch a round, not rounds at a stretch
    assert min(turns[6:].count(name) for name in "abc") >= 2


def test_saved_bytes_count_a_storage_once_and_no_parameters() -> None:
    x = torch.randn(8, 4, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(4, 4))
    assert call_cost.saved_bytes(lambda: x.exp(), []) == 8 * 4 * 4
    assert call_cost.saved_bytes(lambda: x * x, []) == 8 * 4 * 4
    assert call_cost.saved_bytes(lambda: x @ weight, [weight]) == 8 * 4 * 4
    assert call_cost.saved_bytes(lambda: x @ weight, []) == 8 * 4 * 4 + 64
    assert call_cost.saved_bytes(lambda: x.clone(), []) == 0


def test_the_peak_of_a_training_pass_has_the_gradients_of_the_weights() -> None:
    layer, megabyte, measured = torch.nn.Linear(4096, 4096, bias=False), 2**20, row("layer", [])
    contender = contenders.Contender(layer, (torch.ones(1, 4096, requires_grad=True),), layer)
    contest._measure_memory(contender, measured, "training", BenchmarkOptions())
    if measured.peak_bytes is None:
        pytest.skip("this kernel does not reset the peak of the resident set")
    assert 60 * megabyte < measured.peak_bytes < 90 * megabyte


def test_peak_memory_sees_what_is_freed_again() -> None:
    megabyte = 2**20
    memory = call_cost.PeakMemory("cpu")
    if memory.peak is None:
        pytest.skip("this kernel does not reset the peak of the resident set")
    torch.ones(16 * megabyte)
    assert 60 * megabyte < (memory.peak or 0) < 90 * megabyte
    again = call_cost.PeakMemory("cpu")
    torch.ones(megabyte)
    assert (again.peak or 0) < 30 * megabyte


def test_windows_measures_calls_and_says_no_peak_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    for name in ("resource", "fcntl"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of them fails
    monkeypatch.setattr("sliceformer_lab.runs.processes.proc_bytes", lambda name: None)
    there = runpy.run_path(str(call_cost.__file__))
    there["start_new_peak"]("cpu")
    assert (there["peak_memory"]("cpu"), there["PeakMemory"]("cpu").peak) == (None, None)


# processes


def test_child_returns_raises_or_is_reported_dead() -> None:
    assert in_child(max, 1, 3, limited=True) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        in_child(int, "x", limited=True)
    with pytest.raises(ProcessEndedError, match="exit code 7") as ended:
        in_child(os._exit, 7, limited=False)
    assert not ended.value.killed
    with pytest.raises(ProcessEndedError, match="SIGKILL") as ended:
        in_child(signal.raise_signal, signal.SIGKILL, limited=False)
    assert ended.value.killed


def test_want_of_memory_and_options_that_do_not_fit_are_rows_and_others_go_on() -> None:
    options = BenchmarkOptions(rounds=2, warmup=1)
    node = {"_target_": "sliceformer_lab.commands.benchmark.peers.PlainSoftmax"}
    floor = {"_target_": "sliceformer_lab.attention.identity.Identity"}
    unfit = {"_target_": "sliceformer_lab.attention.sparse.Sparse", "block_size": 4, "num_summary": 4}
    plain, identity, wrong = Variant("mha", "plain", node), Variant("identity", node=floor), Variant("csp", node=unfit)
    work = Workload("layer", "layer", 400_000, 1, 8)  # a map of 5 TB
    rows = in_child(run_contest, SpeedComparison(work, (plain, wrong, identity), identity), options, limited=True)
    found = {(row.name, row.mode): (row.status, row.seconds is not None) for row in rows}
    assert {found["mha (plain)", mode] for mode in ("inference", "training")} == {("oom", False)}
    assert {found["identity", mode] for mode in ("inference", "training")} == {("ok", True)}
    assert {found["csp", mode] for mode in ("inference", "training")} == {("failed", False)}
    assert "num_summary must be within 0..block_size-1 = 3, got 4" in rows[2].note


def fill_gpu() -> None:
    raise torch.cuda.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("fill", [fill_gpu, partial(torch.empty, 10**15)])
def test_variants_that_fill_the_memory_together_are_rows_and_the_next_comparison_goes_on(
    fill: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_suite, "in_child", lambda *_, **__: fill())
    rows = run_suite.run_benchmark(BenchmarkOptions(sizes=[8, 16]), tmp_path)
    assert {row.tokens for row in rows} == {8, 16} and "memory" in rows[0].note
    assert {(row.status, row.note, row.seconds) for row in rows} == {("oom", rows[0].note, None)}


def test_padded_layers_share_their_lengths_and_softmax_attention_packs_them_on_a_gpu() -> None:
    options = BenchmarkOptions(padded=True, attentions=("csp",), sizes=(16,), batch=8, rounds=2, warmup=1)
    (one,) = comparisons(options)
    rows = run_contest(one, options)
    assert {row.status for row in rows} == {"ok"} and {row.workload for row in rows} == {"padded layer"}
    masks = [contenders.build(variant, one.workload, options).inputs[2] for variant in one.variants]
    lengths = masks[0].sum(1)
    assert lengths[0] == 16 and 4 <= lengths.min() < lengths.max()
    assert all(mask.equal(masks[0]) for mask in masks)
    (on_gpu,) = comparisons(BenchmarkOptions(padded=True, sizes=(16,), device="cuda", dtype="bfloat16"))
    assert {v.name for v in on_gpu.variants} - {v.name for v in one.variants} >= {"mha (packed)"}


def test_padding_is_refused_where_nothing_is_padded_or_an_attention_accepts_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="suite=layers"):
        BenchmarkOptions(suite="operators", padded=True)
    with pytest.raises(ConfigError, match="published_csp accepts no padding"):
        comparisons(BenchmarkOptions(padded=True, attentions=("published_csp",)))
    monkeypatch.setattr(Linformer, "accepts_padding", False)  # as one of the user may say
    with pytest.raises(ConfigError, match="linformer accepts no padding; leave it out, or set padded=false"):
        comparisons(BenchmarkOptions(padded=True, attentions=("csp", "linformer")))
    assert comparisons(BenchmarkOptions(attentions=("csp", "linformer")))


# rows


def test_the_printed_tables_have_milliseconds_and_megabytes_of_both_modes(capsys: pytest.CaptureFixture[str]) -> None:
    modes = ("inference", 0.0125, 2e6), ("training", 0.025, 7e6)
    print_speed_tables([row("x", [time], mode=mode, peak_bytes=peak, ratio=0.5) for mode, time, peak in modes])
    times, costs = (line.replace("│", "").split() for line in capsys.readouterr().out.splitlines() if " x " in line)
    assert times == ["64", "2", "8", "x", "plain", "12.5", "0.5", "25", "0.5"] and costs[4:6] == ["2", "7"]


def test_ratios_are_medians_of_those_inside_rounds_and_set_where_both_ran() -> None:
    rows = [row("mha (fused)", [1.0, 10.0, 2.0]), row("csp (cpu)", [0.5, 4.0, 1.0]), row("x", [], status="oom")]
    places = {"tokens": 128}, {"mode": "inference"}, {"workload": "padded layer"}
    set_ratios([*rows, *(others := [row("csp (cpu)", [1.0] * 3, **place) for place in places])])
    assert [r.ratio for r in rows] == [1.0, 0.5, None] and {other.ratio for other in others} == {None}
    assert (rows[1].ratio_q1, rows[1].ratio_q3) == pytest.approx((0.45, 0.5))
