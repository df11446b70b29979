"""From a command line to the jobs of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sliceformer_lab.config.compose import with_conf_folders
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.runs.sources import check_sources
from sliceformer_lab.sweeps.plan import SweepPlan, is_sweep, plan_sweep

Plan = Callable[..., SweepPlan]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans a multirun in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    register_resolvers()

    def planned(*words: str) -> SweepPlan:
        return plan_sweep(words, multirun=True)

    return planned


def words_of(plan: SweepPlan) -> list[str]:
    return [" ".join(job.words) for job in plan.jobs]


def test_the_last_option_varies_fastest_and_words_of_the_launcher_reach_no_job(plan: Plan) -> None:
    found = plan("attention=mha,csp", "encoder=tiny", "seed=range(2)", "launcher=local", "launcher.jobs=2")
    assert words_of(found) == [
        f"attention={attention} encoder=tiny seed={seed}" for attention in ("mha", "csp") for seed in (0, 1)
    ]
    assert found.launcher["jobs"] == 2
    assert [job.name.rpartition("-")[0] for job in found.jobs[1:3]] == ["1-digits-mha", "2-digits-csp"]


def test_zipped_options_vary_together_beside_the_product(plan: Plan) -> None:
    found = plan("zip(attention=[mha,csp], optim.lr=[1e-3,3e-4])", "seed=0,1")
    assert words_of(found) == [
        *("attention=mha optim.lr=0.001 seed=0", "attention=mha optim.lr=0.001 seed=1"),
        *("attention=csp optim.lr=0.0003 seed=0", "attention=csp optim.lr=0.0003 seed=1"),
    ]


def test_two_zips_make_a_product_and_values_may_be_lists(plan: Plan) -> None:
    found = plan("zip(seed=[0,1])", "zip(attention=[hybrid,mha],tags=[[a,b],[c]])")
    assert words_of(found)[:2] == ["seed=0 attention=hybrid tags=[a,b]", "seed=0 attention=mha tags=[c]"]
    assert len(found.jobs) == 4


def test_rules_leave_jobs_out_and_say_how_many(plan: Plan) -> None:
    found = plan("attention=mha,csp,linformer", "seed=0,1", "skip(attention=[linformer,csp], seed=1)")
    assert len(found.jobs) == 4 and found.skipped == {"attention=[linformer,csp], seed=1": 2}


def test_a_pattern_chooses_options_by_name(plan: Plan) -> None:
    assert words_of(plan("attention=glob(csp*,exclude=*_*)")) == ["attention=csp"]


def test_the_same_command_has_the_same_folder_and_another_one_has_another(plan: Plan) -> None:
    first = plan("attention=mha,csp", "seed=0")
    assert plan("attention=mha,csp", "seed=0", "launcher=local", "launcher.jobs=2").folder == first.folder
    assert plan("attention=mha,csp", "seed=1").folder != first.folder
    elsewhere = plan("attention=mha,csp", "seed=0", "trainer.benchmark=true", "logger=wandb")
    assert elsewhere.folder != first.folder
    assert [job.name for job in elsewhere.jobs] == [job.name for job in first.jobs], "in one folder they go on"
    assert plan("attention=mha,csp", "hydra.sweep.dir=here").folder == Path("here").resolve()


def test_jobs_with_an_option_that_changes_a_result_have_other_names(plan: Plan) -> None:
    options = (
        *("trainer.limit_train_batches=2", "trainer.overfit_batches=2", "trainer.fast_dev_run=true"),
        *("trainer.precision=bf16-mixed", "trainer.devices=2", "trainer=gpu"),
        *("callbacks=ema", "callbacks=early_stop"),
    )
    names = [plan("seed=0", *words).jobs[0].name for words in ((), *((option,) for option in options))]
    assert len(set(names)) == len(options) + 1


def test_a_sweep_from_other_weights_has_another_folder(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    words = ("attention=mha,csp", "task=cifar10", "encoder.init=timm:vit_tiny_patch16_224", f"encoder.init_file={file}")
    folders = []
    for content in ("first", "second", "first"):
        file.write_text(content)
        found = plan(*words)
        assert list(found.data) == [str(file)]
        folders.append(found.folder)
    assert folders[0] == folders[2] != folders[1]


def test_a_sweep_from_another_pretraining_has_another_folder(plan: Plan, tmp_path: Path) -> None:
    place = tmp_path / "run" / "pretrain"
    weights = place / "checkpoints" / "best.ckpt"
    weights.parent.mkdir(parents=True)
    write_json(place / "pretrain.json", {"model": {}, "checkpoint": weights.name})
    folders = []
    for content, written in (("first", "a"), ("second", "a"), ("first", "b")):
        weights.write_text(content)
        (tmp_path / "run" / "predictions.csv").write_text(written)  # beside the weights
        found = plan("attention=mha,csp", "pretrain=masked", f"pretrain.path={tmp_path / 'run'}")
        check_sources(found.data, ())
        folders.append(found.folder)
    assert folders[0] == folders[2] != folders[1]


def test_a_study_names_its_folder_and_the_command_line_replaces_what_it_sweeps(plan: Plan) -> None:
    found = plan("study=controls_digits", "attention=csp", "zip(seed=[7,8])")
    assert words_of(found) == [f"seed={seed} task=digits study=controls_digits attention=csp" for seed in (7, 8)]
    assert found.folder.name.startswith("controls_digits-") and found.study == "controls_digits"


@pytest.mark.parametrize(
    ("words", "sentence"),
    {
        "zip(attention=[mha,csp],seed=[0])": "lists of 2 and 1 values; give lists of one length",
        "zip(attention=mha)": "attention=mha should be KEY=[VALUE,VALUE]",
        "zip(attention=[mha,csp]": "the bracket is not closed",
        "zip(attention=[mha,cps])": "attention=cps: there is no such option; did you mean csp?",
        "zip(sed=[0,1])": "sed: there is no such key; did you mean seed?",
        "zip(seed=[0,1]) seed=2,3": "seed: given inside and outside zip(...)",
        "study=csp_table1 zip(seed=[0,1]) seed=2": "seed: given inside and outside zip(...)",
        "study=csp_table1 zip(attention=[mha,csp])": "attention: given inside and outside zip(...)",
        "seed=0,1 skip(seed=2)": "skip(seed=2): no job of this sweep has these options",
        "seed=0,1 skip(seed=[0,1])": "skip leaves no job",
        "seed=0,1 skip(seed)": "seed: not understood; write KEY=VALUE",
        "seed=0,1 encoder.dim=[": "encoder.dim=[: not understood; write KEY=VALUE",
        "seed=range(a,b)": "seed=range(a,b): TypeError while evaluating",
        "optim.lr=interval(0,1)": "has no values one by one",
        "seed=0,1 resume=there": "resume and mode belong to one run; the same command continues a sweep",
        "launcher=slrum": "launcher=slrum: there is no such option; did you mean slurm?",
    }.items(),
)
def test_a_fault_is_one_sentence_before_any_job(words: str, sentence: str, plan: Plan) -> None:
    with pytest.raises(ConfigError) as error:
        plan(*words.split())
    assert sentence in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "node",
    [
        "sweep: {rows: ['allow_targets=[stranger.]']}",
        "sweep: {zip: ['hydra/job_logging=[a,b]']}",
        "hydra: {sweeper: {params: {launcher: slurm}}}",
        "sweep: {rows: {_target_: os.system}}",
        "sweep: {zip: [{_target_: os.system}]}",
        "sweep: {other: [a]}",
    ],
)
def test_a_file_of_options_lets_in_nothing(node: str, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "conf" / "study").mkdir(parents=True)
    (tmp_path / "conf" / "study" / "theirs.yaml").write_text(f"# @package _global_\n{node}\n")
    with with_conf_folders([tmp_path / "conf"]), pytest.raises(ConfigError):
        plan("study=theirs", "seed=0,1")


def test_a_sweep_over_recipes_takes_options_of_their_data(plan: Plan) -> None:
    found = plan("recipe=csp/table3_cifar10,csp/table3_cifar100", "data.verify=false")
    assert words_of(found) == [f"recipe=csp/table3_{task} data.verify=false" for task in ("cifar10", "cifar100")]


def test_one_run_is_no_sweep_unless_a_launcher_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    register_resolvers()
    assert not is_sweep(["attention=csp", "seed=1"], multirun=False)
    assert plan_sweep(["launcher=serial", "seed=1"], multirun=False) is None
    one = plan_sweep(["launcher=slurm", "seed=1"], multirun=False)
    assert words_of(one) == ["seed=1"]


def test_the_same_words_with_another_table_are_another_sweep_and_with_its_copy_elsewhere_the_same(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("task=text_csv", "data.file=table.csv", "seed=0,1", f"paths.outputs={tmp_path / 'outputs'}")
    table = "text,label\ngood,pos\nbad,neg\n"
    folders = {}
    for name, content in {"here": table, "copy": table, "permuted": table[:11] + "good,neg\nbad,pos\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.csv").write_text(content)
        monkeypatch.chdir(tmp_path / name)
        found = plan(*words)
        assert list(found.data) == [str(tmp_path / name / "table.csv")]
        folders[name] = found.folder
    assert folders["here"] == folders["copy"] != folders["permuted"]
