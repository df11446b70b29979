"""Analyses measure the models of real runs, say what they were made from, and leave nothing out in silence."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from support import task_modules
from support.encoders import make_encoder
from support.plans import run
from support.run_folders import read_summary
from support.runs import small_config
from torch import nn

from sliceformer_lab.__main__ import main
from sliceformer_lab.batch import Batch
from sliceformer_lab.commands.inspect import run_analysis
from sliceformer_lab.commands.inspect.inspect_options import InspectOptions
from sliceformer_lab.commands.inspect.models import Group, Opened, Source, Study, open_study
from sliceformer_lab.commands.inspect.panels import caption, count_runs, lines_over, name_rows
from sliceformer_lab.commands.inspect.parts import ALL_PARTS, WHOLE, only_parts
from sliceformer_lab.commands.inspect.show_residual import ALONE, ShowResidual, bound_factors
from sliceformer_lab.commands.inspect.show_spectrum import ShowSpectrum, _draw_spectra
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_job, load_option
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.errors import DataError
from sliceformer_lab.measures.capture import evaluation_mode, record_blocks
from sliceformer_lab.measures.drawing import draw_chart
from sliceformer_lab.measures.probe_record import FORMS, MEASURES, PLACES, ProbeRecord
from sliceformer_lab.measures.residual import relative_residual
from sliceformer_lab.runs.controls import controls
from sliceformer_lab.runs.folder import CONFIG, IDENTITY_KEY, SUMMARY, read_checkpoint
from sliceformer_lab.training.saved.saved_run import load_run

SAMPLES = 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of mha and one of csp, the last one watched by the callback."""
    folder = tmp_path_factory.mktemp("runs")
    short = ("optim.epochs=1", "data.limit_train=64")
    watched = load_option("callbacks", "default")["spectrum"] | {"num_samples": SAMPLES}
    for name, words in {"m0": ("seed=0",), "m1": ("seed=1",), "c0": ("seed=0", "attention=csp")}.items():
        config = small_config(*words, *short)
        if name == "c0":
            config["callbacks"]["spectrum"] = watched
        run(config, folder / name)
    return folder


@pytest.fixture
def study(runs: Path) -> Study:
    return open_study(InspectOptions(runs=str(runs)))


def analyze(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main(["inspect", *arguments])
    return code, *capfd.readouterr()


def test_spectrum_finds_at_init_and_at_the_end_what_the_callback_saw_during_the_run(runs: Path) -> None:
    study = open_study(InspectOptions(runs=str(runs / "c0"), checkpoint=("init", "last"), controls=False))
    table = ShowSpectrum(samples=SAMPLES).measurements(study)
    record = ProbeRecord.load(runs / "c0" / "spectrum.npz")
    assert record.epochs.tolist() == [-1, 0]
    keys = ["checkpoint", "layer", "place", "form", "measure", "index"]
    values = table.set_index(keys).sort_index()
    for moment, checkpoint in enumerate(("init", "last")):
        for place, form, name in ((p, f, n) for p in PLACES for f in FORMS for n in MEASURES):
            for layer, seen in enumerate(record.at(name, place, form, moment=moment)):
                ours = values.loc[(checkpoint, layer + 1, place, form, name)]
                known = np.atleast_1d(seen)[np.isfinite(np.atleast_1d(seen))]
                np.testing.assert_allclose(ours["mean"], known, rtol=1e-6, atol=1e-9)
    assert table["samples"].unique().tolist() == [SAMPLES]


def test_every_attention_and_control_is_in_the_table_and_in_every_figure(runs: Path) -> None:
    found = ShowSpectrum(samples=2).findings(open_study(InspectOptions(runs=str(runs), checkpoint="init")))
    seeds = found.table.groupby("attention")["seed"].nunique().to_dict()
    assert seeds == {"csp": 1, "mha": 2} | dict.fromkeys(controls(), 1)
    assert found.table.groupby("attention")["control"].first().to_dict() == {
        "csp": False,
        "mha": False,
        **dict.fromkeys(controls(), True),
    }
    labels = {"csp", "mha", *(f"{name} (control, only untrained)" for name in controls())}
    assert len(found.charts) == len(FORMS) + len(MEASURES) - 1
    for chart in found.charts:
        assert {entry.get_label() for entry in chart.legend} == labels
    mean = found.table[(found.table["attention"] == "mean") & (found.table["place"] == "output")]
    rank = mean[(mean["measure"] == "stable_rank") & (mean["form"] == "mean_removed")]
    assert rank["mean"].abs().max() == 0


def test_all_runs_of_a_task_see_the_same_samples(study: Study) -> None:
    (group,) = study.groups
    first, *others = (group.batches(source, source.model("init"), SAMPLES) for source in group.sources)
    split = load_run(group.sources[0].folder or "").data
    split.setup()
    expected = split.splits["val"].__getitems__(list(range(SAMPLES)))
    for batches in (first, *others):
        assert torch.equal(torch.cat([batch.inputs for batch in batches]), expected.inputs)
        assert torch.equal(torch.cat([batch.ids for batch in batches]), expected.ids)
    other = group.sources[0].plan.with_options({"data.split_seed": 7})
    (elsewhere,) = group.batches(Source("mha", "mha", other), group.sources[0].model("init"), SAMPLES)
    assert torch.equal(elsewhere.inputs, expected.inputs)


def test_long_samples_come_a_few_at_a_time(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    (group,) = study.groups
    source = group.sources[0]
    opened, spectrum = Opened(source, "init", source.model("init")), ShowSpectrum(samples=SAMPLES)
    whole = spectrum.measured(group, opened)
    monkeypatch.setattr("sliceformer_lab.commands.inspect.models.MAX_TOKEN_PAIRS", 2 * 17**2)
    assert len(group.batches(source, opened.model, SAMPLES)) == 3
    torch.testing.assert_close(spectrum.measured(group, opened), whole, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_best_weights_are_the_runs_and_opening_a_model_leaves_the_generators_alone(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "m1", tmp_path / "m1")
    (folder / "checkpoints" / "last.ckpt").unlink()  # whose weights are others in a longer run
    source = open_study(InspectOptions(runs=str(folder))).groups[0].sources[0]
    before = torch.get_rng_state()
    model = source.model("best")
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in load_run(runs / "m1").model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    assert not torch.equal(source.model("init").head.weight, model.head.weight)


def table_of_runs(**columns: list[Any]) -> pd.DataFrame:
    """Rows of the analysis of spectra, with the same facts but for some columns."""
    same = {"control": False, "checkpoint": "best", "layer": 1, "place": "output", "form": "raw"}
    return pd.DataFrame({"attention": "csp", **same, "measure": "spectrum", "std_over_samples": 0.1, **columns})


def test_a_spectrum_is_drawn_as_the_mean_over_all_runs(study: Study) -> None:
    means, values = [1.0, 4e-6, 1.0, 4e-7], {"seed": [0, 0, 1, 1], "index": [1, 2, 1, 2]}
    table = table_of_runs(mean=means, run=["a", "a", "b", "b"], samples=[6, 3, 6, 3], **values)
    lines = lines_over(name_rows(table), "index")
    assert (lines["high"] - lines["mean"]).tolist() == pytest.approx([0, 3.6e-6 / 2**0.5]), "over runs, not samples"
    figure = draw_chart(_draw_spectra(study.groups[0], name_rows(table), "raw"))
    drawn = figure.axes[0].lines[0]
    assert np.asarray(drawn.get_ydata()) == pytest.approx([1.0, 2.2e-6]), "not of the run above the rounding alone"
    assert "mean over 3 to 6 samples and 2 runs" in " ".join(figure.get_suptitle().split())


def test_an_operator_that_makes_all_tokens_equal_has_an_empty_panel(study: Study) -> None:
    values = {"mean": [1.0, np.nan], "form": ["raw", "mean_removed"], "index": [1, 1]}
    table = name_rows(table_of_runs(run=["a", "a"], seed=[0, 0], samples=[6, 0], **values))
    figure = draw_chart(_draw_spectra(study.groups[0], table, "mean_removed"))
    assert [line for axes in figure.axes for line in axes.lines if len(line.get_xdata())] == []


def test_runs_of_one_seed_on_several_splits_count_each_and_untrained_controls_once() -> None:
    table = table_of_runs(mean=[1.0, 1.0, 1.0], run=["a", "b", "c"], seed=[0, 0, 0], samples=[6, 6, 6], index=[1, 1, 1])
    assert count_runs(table) == 3 and "3 runs, band: standard deviation over runs" in caption(table)
    alone = table.assign(run="", attention="identity").head(1)
    assert "1 to 3 runs, band: standard deviation over runs (of one run: over samples)" in caption(
        pd.concat([table, alone])
    )


def test_parts_are_switched_off_and_restored(study: Study) -> None:
    (group,) = study.groups
    source = group.sources[0]
    model = source.model("best")
    blocks, (batch,) = model.encoder.blocks, group.batches(source, model, 3)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with evaluation_mode(model):
        before = model(batch)
        for parts in ALL_PARTS:
            with only_parts(blocks, parts), record_blocks(blocks) as taken:
                model(batch)
                block, seen = blocks[0], taken[0]
                x = seen["before"]
                h = block.norm1(x) if parts.norm else x
                y = block.attention(h) + (x if parts.skip else 0)
                if parts.mlp:
                    y = block.mlp(block.norm2(y) if parts.norm else y) + (y if parts.skip else 0)
                torch.testing.assert_close(seen["stream"], y)
                biased = [p for name, p in block.named_parameters() if name.endswith("bias") and p.any()]
                assert bool(biased) == parts.is_whole
        assert torch.equal(model(batch), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert WHOLE in ALL_PARTS and len(set(ALL_PARTS)) == 8


def test_without_other_parts_an_operator_keeps_the_biases_that_are_its_own() -> None:
    sizes = {"dim": 16, "depth": 1, "num_heads": 1, "position": "none"}
    blocks = list(make_encoder("gmlp", encoder=sizes, max_len=8, kind="transformer").blocks)
    for parameter in blocks[0].parameters():
        torch.nn.init.ones_(parameter)
    with only_parts(blocks, ALONE):
        kept = {name for name, p in blocks[0].attention.named_parameters() if name.endswith("bias") and p.any()}
        assert kept == {"gated.bias", "norm.bias", "spatial.bias"}
    assert all(p.all() for p in blocks[0].parameters())


def test_residual_is_that_of_the_real_tokens_and_stays_below_the_bound(study: Study) -> None:
    found = ShowResidual(samples=2).findings(study)
    table = found.table
    (group,) = study.groups
    source = group.sources[0]
    model = source.model("init")
    (batch,) = group.batches(source, model, 2)
    with evaluation_mode(model), record_blocks(model.encoder.blocks) as taken:
        model(batch)
    whole = table[(table["run"] == source.folder.name) & (table["checkpoint"] == "init")]
    whole = whole[whole["skip"] & whole["mlp"] & whole["norm"]].set_index("layer")["mean"]
    for layer, x in enumerate([taken[0]["before"], *(seen["stream"] for seen in taken)]):
        assert whole[layer] == pytest.approx(float(relative_residual(x).mean()), rel=1e-4)
    both = table.pivot_table(index=["attention", "checkpoint", "seed", "layer"], columns="measure", values="mean")
    bounded = both.dropna(subset="bound")
    assert set(bounded.index.unique("attention")) == {"csp", "identity", "random_permutation"}
    assert (bounded["growth"] <= bounded["bound"] * (1 + 1e-9)).all()
    alone = table[~(table["skip"] | table["mlp"] | table["norm"]) & (table["measure"] == "relative_residual")]
    last = alone[alone["layer"] == alone["layer"].max()].groupby("attention")["mean"].max()
    assert last["mha"] < 0.05 < 0.5 < last["csp"] and last["mean"] < 1e-5
    charts = {chart.name: chart for chart in found.charts}
    assert set(charts) == {"digits-residual-init", "digits-residual-best", "digits-bound"}
    trained = charts["digits-residual-best"].legend
    assert {entry.get_label() for entry in trained} == {"csp", "mha"}, "the untrained controls have no line there"


@pytest.mark.parametrize(
    ("attention", "causal", "bounded"),
    [
        ("identity", True, True),
        ("random_permutation", False, True),
        ("random_permutation", True, False),
        ("csp_causal", True, False),
        ("csp_causal", False, False),
    ],
)
def test_the_theorems_bound_is_left_out_where_values_are_lost(attention: str, causal: bool, bounded: bool) -> None:
    model = nn.Module()
    model.encoder = make_encoder(attention, max_len=12, kind="transformer", causal=causal)
    model.forward = model.encoder.forward
    group: Any = SimpleNamespace(batches=lambda *_: [torch.randn(1, 12, model.encoder.options.dim)])
    opened: Any = SimpleNamespace(model=model, source=None)
    rows = ShowResidual(samples=1).rows(group, opened)
    assert ("bound" in {row["measure"] for row in rows}) == bounded


def test_bound_is_the_theorems_for_known_weights(study: Study) -> None:
    model = next(source for source in study.groups[0].sources if source.attention == "csp").model("init")
    blocks = model.encoder.blocks
    with torch.no_grad():
        for block in blocks:
            block.attention.value.weight.copy_(0.5 * torch.eye(*block.attention.value.weight.shape))
            block.attention.out.weight.copy_(3 * torch.eye(*block.attention.out.weight.shape))
    width = blocks[0].attention.width
    assert bound_factors(blocks) == pytest.approx([(width**0.5 * 1.5) ** depth for depth in range(len(blocks) + 1)])


def node_of(data: DataModule) -> dict[str, Any]:
    """The node of a configuration that constructs this data module."""
    options = {field.name: getattr(data, field.name) for field in dataclasses.fields(data) if field.init}
    del options["plan"]  # which the run decides
    return options | {"_target_": f"{type(data).__module__}.{type(data).__name__}"}


@pytest.mark.parametrize("task", ["text_csv", "zinc", "modelnet40"])
def test_any_task_can_be_analysed(task: str, tmp_path: Path) -> None:
    """Padding, a graph token and its bias, points: real tokens only, and finite."""
    data = task_modules.ready(task, tmp_path)
    composed = compose_job([f"task={task}", "encoder=tiny", "encoder.dim=32", "attention=csp"])
    source = Source("csp", "csp", check_config(composed | {"data": node_of(data)}))
    group, study = Group(task, task, [source], 0), Study([], ("init",))
    study.groups.append(group)
    for analysis in (ShowSpectrum(samples=3), ShowResidual(samples=3)):
        (opened,) = study.open_models(group)
        assert not study.left_out
        lengths = {int(n) for batch in group.batches(source, opened.model, 3) for n in real_tokens(opened.model, batch)}
        if isinstance(analysis, ShowSpectrum):
            measured = analysis.measurements(study)
            assert np.isfinite(measured[measured["measure"] != "spectrum"]["mean"]).all()
        else:
            assert {len(x) for stream in analysis._streams(group, opened) for x in stream} == lengths


def test_data_that_have_moved_are_found_where_the_option_says(tmp_path: Path) -> None:
    data = task_modules.ready("zinc", tmp_path)
    composed = compose_job(["task=zinc", "encoder=tiny", "encoder.dim=32", "attention=csp"])
    node = node_of(data) | {"root": str(tmp_path / "gone")}
    source = Source("csp", "csp", check_config(composed | {"data": node}))
    model = source.model("init")
    with pytest.raises(DataError):
        Group("zinc", "zinc", [source], 0).batches(source, model, 2)
    (batch,) = Group("zinc", "zinc", [source], 0, data_root=str(data.root)).batches(source, model, 2)
    assert len(batch) == 2


def real_tokens(model: Any, batch: Batch) -> list[int]:
    """The number of real tokens of each row, as the first block receives it."""
    with evaluation_mode(model), record_blocks(model.encoder.blocks) as taken:
        model(batch)
    seen = taken[0]
    assert all(not x[n:].any() for x, n in zip(seen["before"], seen["lengths"].tolist(), strict=True))
    return seen["lengths"].tolist()


def change(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


def test_the_command_writes_tables_and_pictures_and_names_what_it_left_out(
    runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "the runs' = mine"
    for name in ("m0", "m1", "c0"):
        shutil.copytree(runs / name, folder / name)
    for seed, name in enumerate(("failed", "half", "other_version", "no_data", "no_weights", "other_model"), 10):
        shutil.copytree(runs / "m0", folder / name)
        change(folder / name, SUMMARY, '"seed": 0', f'"seed": {seed}')
    change(folder / "failed", SUMMARY, '"status": "ok"', '"status": "failed", "error": "RuntimeError: out of luck"')
    (folder / "half" / SUMMARY).write_text('{"task": "dig')
    change(folder / "other_version", CONFIG, "mlp_dim:", "old_name_of_mlp_dim:")
    change(
        folder / "no_data",
        CONFIG,
        "sliceformer_lab.data.images.small_images.Digits",
        "sliceformer_lab.data.nothing.Digits",
    )
    shutil.rmtree(folder / "no_weights" / "checkpoints")
    shutil.copytree(runs / "c0" / "checkpoints", folder / "other_model" / "checkpoints", dirs_exist_ok=True)
    code, out, err = analyze(capfd, "residual", f'runs="{folder}"', "checkpoint=best", "analysis.samples=1")
    assert (code, err.strip()) == (0, "")
    assert out.startswith("residual: 5 models in ") and "with the weights of best" in out.splitlines()[0]
    written = folder / "analysis" / "residual"
    pictures = ["digits-bound.pdf", "digits-bound.png", "digits-residual-best.pdf", "digits-residual-best.png"]
    assert sorted(file.name for file in written.iterdir()) == [*pictures, "residual.csv", "residual.json"]
    with Image.open(written / "digits-bound.png") as picture:
        assert min(picture.size) > 300
    table = pd.read_csv(written / "residual.csv")
    assert set(table["run"]) == {"m0", "m1", "c0"} and set(table["checkpoint"]) == {"best"}
    made_from = json.loads((written / "residual.json").read_text())
    assert made_from["options"]["samples"] == 1 and made_from["checkpoint"] == "best"
    (group,) = made_from["groups"]
    assert (group["split"], group["split_seed"], group["data"]["name"]) == ("val", 0, "digits")
    commit = read_summary(runs / "m0")["git_commit"]
    assert {"attention": "mha", "seed": 0, "folder": str(folder / "m0"), "git_commit": commit} in group["models"]
    assert len(group["models"]) == 3
    expected = {
        "failed": "its status is failed: RuntimeError: out of luck",
        "half": "cannot be read",
        "other_version": "there is no such option",
        "no_data": "cannot be loaded",
        "no_weights": "no checkpoints/best.ckpt",
        "other_model": "is the checkpoint of another run",
    }
    assert made_from["left_out"].keys() == {str(folder / name) for name in expected}
    for name, why in expected.items():
        assert why in made_from["left_out"][str(folder / name)] and why in out
    assert f"left out: {folder / 'no_weights'}: has no checkpoints/best.ckpt" in out


def test_each_group_of_a_task_has_charts_of_its_own_with_its_number_and_controls_are_measured_beside_a_run_only(
    runs: Path, tmp_path: Path
) -> None:
    for name in ("small", "trial", "whole"):  # three tables of one task
        shutil.copytree(runs / "c0", tmp_path / name)
    change(tmp_path / "small", SUMMARY, '"limit_train": 64', '"limit_train": 63')
    change(tmp_path / "trial", SUMMARY, '"limit_train": 64', '"limit_train": 65')
    shutil.rmtree(tmp_path / "trial" / "checkpoints")  # as debug=fast leaves a run
    study = open_study(InspectOptions(runs=str(tmp_path)))
    found = ShowSpectrum(samples=1).findings(study)
    headings = {chart.name: chart.heading for chart in found.charts if "depth-cosine" in chart.name}
    by_group = found.table.groupby("group")
    first, second = (number for number, group in enumerate(study.groups, 1) if group.title in by_group.groups)
    assert list(headings) == ["digits-depth-cosine", f"digits-depth-cosine-group{second}"]
    for number, heading in zip((first, second), headings.values(), strict=True):
        assert heading.startswith(f"Group {number}: digits: mean cosine")
    assert by_group["attention"].nunique().tolist() == [7, 7]  # csp and six controls
    assert by_group["run"].agg("max").isin(["small", "whole"]).all()


def test_a_run_folder_named_by_the_user_is_measured_whatever_its_status(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "m0", tmp_path / "m0")
    change(tmp_path / "m0", SUMMARY, '"status": "ok"', '"status": "interrupted"')
    with_others = open_study(InspectOptions(runs=str(tmp_path)))
    assert not with_others.groups and "interrupted" in with_others.left_out[str(tmp_path / "m0")]
    named = open_study(InspectOptions(runs=(str(tmp_path / "m0"), str(runs / "c0")), controls=False))
    assert [source.attention for source in named.groups[0].sources] == ["csp", "mha"] and not named.left_out


def opened_study(folder: Path) -> Study:
    """The runs below a folder, after every model has been opened."""
    study = open_study(InspectOptions(runs=str(folder), controls=False))
    for group in study.groups:
        list(study.open_models(group))
    return study


@pytest.mark.parametrize("other", ["m0", "m1"])
def test_a_run_is_not_measured_on_other_data_than_its_own(other: str, runs: Path, tmp_path: Path) -> None:
    for name in ("m0", "m1"):
        shutil.copytree(runs / name, tmp_path / name)
        split = "val" if name == other else "test"  # validation samples are measured
        change(tmp_path / name, SUMMARY, read_summary(runs / name)["digests"][split], "d" * 64)
    reason = "the validation data differ from those that the run was trained with"
    assert opened_study(tmp_path).left_out == {str(tmp_path / other): reason}


def test_a_run_of_another_split_is_not_measured_on_other_data_than_its_own(
    runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("m0", "m1"):
        shutil.copytree(runs / name, tmp_path / name)
    for file, text in ((CONFIG, "split_seed: 0"), (SUMMARY, '"split_seed": 0')):
        change(tmp_path / "m1", file, text, text.replace("0", "7"))
    change(tmp_path / "m1", SUMMARY, read_summary(runs / "m1")["digests"]["val"], "e" * 64)
    checkpoint = tmp_path / "m1" / "checkpoints" / "best.ckpt"
    content = read_checkpoint(checkpoint)
    content[IDENTITY_KEY]["data.split_seed"] = 7
    torch.save(content, checkpoint)

    def measured() -> list[str]:
        study = open_study(InspectOptions(runs=str(tmp_path), controls=False))
        assert not study.left_out
        names = [opened.facts["run"] for group in study.groups for opened in study.open_models(group)]
        reason = "the data differ from those that the run was trained with"
        assert study.left_out == ({} if "m1" in names else {str(tmp_path / "m1"): reason})
        said = "those trained with split_seed 7 held out others, so they may have trained on these"
        assert [said in group.note for group in study.groups] == ["m1" in names]
        return names

    assert set(measured()) == {"m0", "m1"}
    monkeypatch.setattr(run_analysis, "write_charts", lambda charts, folder: [])  # which takes most of the time
    code, out, _ = analyze(capfd, "residual", f"runs={tmp_path}", "controls=false", "analysis.samples=1")
    note = "all models see the samples of data.split_seed=0; those trained with split_seed 7 held out others"
    (group,) = json.loads((tmp_path / "analysis" / "residual" / "residual.json").read_text())["groups"]
    assert code == 0 and note in out and note in group["note"]
    for name in ("m0", "m1"):
        change(tmp_path / name, SUMMARY, read_summary(runs / name)["protocol"]["sha256"], "d" * 64)
    assert set(measured()) == {"m0"}  # whose own samples have not changed


def test_runs_that_cannot_be_measured_are_named_and_leave_no_folder(
    runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("m0", "m1"):
        shutil.copytree(runs / name, tmp_path / name)
        change(tmp_path / name, SUMMARY, '"status": "ok"', '"status": "diverged"')
    code, _, err = analyze(capfd, "spectrum", f"runs={tmp_path}")
    reason = r"could be opened: \S*/m[01] and 1 more: its status is diverged$"
    assert (code, err.count("\n")) == (1, 1) and re.search(reason, err), err
    assert {file.name for file in tmp_path.iterdir()} == {"m0", "m1"}
