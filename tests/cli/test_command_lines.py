"""Command lines that cannot work: each is refused in one sentence, before data are read."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.other_process import run_python

from sliceformer_lab.__main__ import main
from sliceformer_lab.config import schema
from sliceformer_lab.data.images.small_images import Digits
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.tuned import BEST_FILE

INFINITE = "should be a finite number"
SLOW = ("sliceformer_lab.commands.compare.steps", "sliceformer_lab.commands.map.map_runs")
STEPS = "optim.epochs=null optim.interval=step optim.steps"

# Lines that the plain values of the configuration refuse, and what the sentence says.
WITHOUT_TORCH = {
    "seed=1e400 optim.lr=inf optim.betas=[0.9,nan] optim.epochs=99999999999999999999 encoder.dim=1000000000 "
    "attention=hybrid attention.pattern=[csp,csp,csp,csp,csp] +attention.options.csp.group_size=inf "
    "encoder.init=timm:vit_tiny_patch16_224 encoder.init_file=nope budget_by=dim budget=params:1M "
    "trainer.limit_train_batches=0.0 trainer.limit_val_batches=0": (
        f"seed: given inf, {INFINITE}",
        f"optim.lr: given inf, {INFINITE}",
        f"optim.betas.1: given nan, {INFINITE}",
        "optim.epochs: given 1e+20, should be less than 2^63",
        "encoder.dim=1,000,000,000 and encoder.mlp_dim=128: needs at least",
        "names 5 attentions, but encoder.depth=4",
        f"attention.options.csp.group_size: given inf, {INFINITE}",
        "encoder.init_file: nope does not exist",
        "budget_by: given 'dim'",
        "trainer.limit_train_batches: given 0.0, which leaves no batch",
        "trainer.limit_val_batches: given 0, which leaves no batch",
    ),
    f"task=text_csv data.file=tabel.csv seed=4294967296 {STEPS}=100 optim.warmup_steps=100": (
        "data.file: tabel.csv does not exist; did you mean table.csv?",
        "seed: given 4294967296, should be less than 4294967296",
        "optim.warmup_steps=100 takes all of optim.steps=100; try optim.warmup_steps=5",
    ),
    "task=image_folder data.root=table.csv seed=-1": (
        "data.root: table.csv is a file",
        "seed: given -1, should be greater than or equal to 0",
    ),
    "task=text_csv data.file=.": "data.file: . is a folder",
    "task=image_folder": "data/image_folder does not exist; set data.root to a folder of yours",
    "-m seed=0,1 optim.lr=inf": f"optim.lr: given inf, {INFINITE}",
    "+nonsense=1": "nonsense: there is no such option",
    "resume=nope": "resume=nope is not a run folder",
    "--config-dir nowhere": "nowhere: there is no such folder of options",
    "hydra.verbose=true": "hydra.verbose: the command line takes only these options of Hydra:",
    "hydra.searchpath=[file://nowhere]": "nowhere: there is no such folder of options",
    "seed=range(0,1e9) -m": "seed=range(0,1e9): more than 10,000 jobs",
    "seed=range(0,200) data.split_seed=range(0,200) -m": "data.split_seed=range(0,200): more than 10,000 jobs",
    "seed=range(0,9,0) -m": "seed=range(0,9,0): has no values",
    "'zip(seed=[range(0,1e9)],optim.lr=[1,2])'": "seed=range(0,1e9): more than 10,000 jobs",
    "report . -m figures=true,false metric=range(0,1e9)": "-m: only training runs can be swept",
    "optim.weight_decay=0,0.0 -m": "two jobs are the same: optim.weight_decay=0 and optim.weight_decay=0.0; leave",
    "seed=0 seed=1": "seed: given twice, as seed=0 and seed=1",
    "tune data.limit_train=9 data.limit_train=8": "data.limit_train: given twice",
    "recipe=samsa/_sequences": "recipe=samsa/_sequences: there is no such option",
    "hydra.run.dir='' hydra.sweep.dir='' seed=0,1 -m": (
        "hydra.run.dir: given '', should be a folder",
        "hydra.sweep.dir: given '', should be a folder",
    ),
    "score_test=false selection=best_test": "selection=best_test scores the test set every epoch, and score_test=false",
    "~task": "task: a value is needed",
    "++encoder=3": "name one option of encoder",
    "attention=null": "attention=null: name one option of attention",
    "benchmark sizes=[]": "sizes=[]: name at least one",
    "report nope": "folder=nope: there is no such folder",
    "export": "resume: a value is needed",
    "predict resume=nope input=table.csv": "is not a run folder",
    "block=vti": "block=vti: there is no such option; did you mean vit? (there are ",
    "attention.groupsize=4 atention=csp": "attention.groupsize: there is no such key in attention; did you mean "
    "group_size?; atention: there is no such key; did you mean attention?",
    "-m seed=0,1 launcher.jobs=1": "launcher.jobs: there is no such key in launcher, but launcher=local has it",
    "+attention.group_size=4": "there is such a key already; leave out the +",
    "seed=1,2": "seed=1,2: several values; add -m to run each of them, or write [...] for a list",
    "attention.order=[": "attention.order=[: not understood; write KEY=VALUE",
    "data.root=Größe": (
        "data.root=Größe: not understood; write KEY=VALUE, and a value with a letter such as ö or a sign such as ~ in ",
        """two kinds of quotes, 'KEY="VALUE"'""",
    ),
    "'resume=\"Größe (1)\"'": "resume=Größe (1) is not a run folder",
    "reprot outputs": "reprot is neither a command nor KEY=VALUE; did you mean report?",
    "seed=1 attention": "attention: not understood; write KEY=VALUE",
    "--foo": "unrecognized arguments: --foo; see --help",
    "--task digits": "unrecognized arguments: --task; see --help",
    "mode=eval": "mode=eval scores a finished run again: name it with resume=FOLDER",
    "trainer.max_epochs=3 lr=1": "in trainer; did you mean optim.epochs?; lr: there is no such key; did you "
    "mean optim.lr?",
    "attention.group_size=${foo}": "Interpolation key 'foo' not found",
    "paths.data=null": "paths.data: given None, should be a valid string",
    "seed=-1 mode=foo selection=x attention.group_size=two": (
        "seed: given -1, should be greater than or equal to 0; mode: given 'foo', should be 'train' or 'eval'; "
        "selection: given 'x', should be 'best_val', 'last' or 'best_test'\n"
    ),
    "allow_targets=os. attention._target_=os.system": "allow_targets: given 'os.', should be a list of packages",
    "check -m attention=mha,csp": "-m: only training runs can be swept; give this command once for each value",
    "benchmark suite=layer": "benchmark.suite: given 'layer', should be 'operators' or 'layers'",
    "benchmark attention=csp": "attention: there is no such key; did you mean attentions?",
    "benchmark logger=tensorboard": "logger: a benchmark is sent to W&B only",
    "report .": "holds no runs",
    "inspect spectra": "did you mean spectrum",
    "inspect spectrum analysis.sample=3": "did you mean samples",
    "inspect spectrum runs=. checkpoint=worst": "checkpoint: given 'worst'",
    "submit attention=csp sizes=[16]": "growth needs two numbers",
    "audit attention=csp,mha": "attention=csp,mha: one attention is audited; name the others by against=",
    "audit against=csp": "against: names csp, the attention that is compared; leave it out",
    "audit against=": "against: name at least one attention, or leave it out for all compulsory rows",
    "audit seeds=1": "seeds=1: an interval needs 3",
    "audit tuning_seeds=[0,100]": "tuning_seeds: 100 is a seed of the reporting runs; take seeds below 100",
    "audit optim.lr=1e-3": "optim.lr=1e-3: it is chosen for each row; give rates=[...]",
    "audit budget=params:mha": "budget=params:mha: the audit sets it; choose by axes=params,time",
    "map probe=recal": "map.probes",
    "map seed=99": "seed=99: it or one of the two after it is a seed of the reporting runs; take one below 98",
    "map task=digits": "task=digits: the probes are the tasks; choose among them by probe=",
    "map rate=[1e-3]": "rate: there is no such key; did you mean rates?",
    "tune encoder.dim=32,64": "encoder.dim=32,64: several values, but only against are compared",
    "tune attention=mha,csp attention.group_size=4": "attention.group_size: there is no such key in attention",
    "tune selection=best_test": "selection=best_test",
    "optim=tuned:nowhere/csp": "nowhere has no best.json; write optim=tuned:FOLDER/ATTENTION",
    "tune optim=tuned:./cps": "cps was not tuned in .; did you mean csp?",
    "optim=tuned:damaged/csp": "best.json cannot be read",
}

# Lines for which the classes that the configuration names are needed.
WITH_CLASSES = {
    "data.num_workers=100000 data.batch_size=0 encoder.depth=1001 encoder.drop_path=1.0 encoder.position=up "
    "optim.betas=[0.9] attention.group_size=1e3 trainer.log_every_n_steps=x": (
        "data.num_workers: given 100000, should be less than or equal to 256",
        "data.batch_size: given 0",
        "encoder.depth: given 1001, should be less than or equal to 1000",
        "encoder.drop_path: given 1.0",
        "encoder.position: given 'up'",
        "optim.betas",
        "attention.group_size: given 1000.0",
        "trainer.log_every_n_steps: given 'x'",
    ),
    "attention=hybrid attention.options=5": "attention.options: given 5, should be a valid dictionary",
    "attention=hybrid attention.pattern=[csp,../../x,hybrid]": (
        "attention=../../x: there is no such option",
        "hybrid is itself a hybrid",
    ),
    "data._target_=os.system attention._target_=sliceformer_lab.attention.base.Attention "
    "+callbacks.x._target_=pytorch_lightning.cli.instantiate_class "
    "+logger._target_=sliceformer_lab.training.results.wandb_runs.close_wandb": (
        "data._target_: os.system is code outside the allowed packages",
        "is abstract",
        "is not a subclass of pytorch_lightning.Callback",
        "is not a subclass of pytorch_lightning.loggers.Logger",
    ),
    "+callbacks.x=3 callbacks.checkpoints=null": ("callbacks.x: given 3", "callbacks.checkpoints: given None"),
    "encoder.num_heads=7": "num_heads=7 does not divide dim",
    "task=image_folder data.root=damaged paths.data=. hydra.run.dir=damaged/run": "damaged/run, where runs write",
    "-m task=image_folder data.root=damaged seed=0,1 hydra.sweep.dir=damaged/runs": "damaged/runs is in the data",
    "task=image_folder data.root=. paths.outputs=. +paths.more=3": (
        "paths.more: given 3, should be a valid string",
        "/data, where runs write; give paths.data another folder",
        "where runs write; give paths.outputs another folder",
    ),
    "attention=mha encoder.position=rope encoder.dim=60 encoder.num_heads=4": "a head has 15",
    "attention=csp encoder.position=rope": "rope rotates queries and keys",
    "task=lra_listops attention=sliced_relu attention.scores=published": "sequences of many lengths, which SlicedReLU "
    "with these options cannot take",
    "optim.epochs=null": "epochs=None and steps=None: set one of them",
    "trainer.accelerator=nope": "trainer.accelerator: given nope, should be one of auto",
    "trainer=ddp": "trainer.accelerator: given gpu, but torch finds no GPU on this machine",
    "trainer.precision=16-mixed": "trainer.precision=16-mixed: torch trains in float16 on a GPU only; take bf16-mixed",
    "trainer=ddp trainer.accelerator=cpu trainer.devices=1 trainer.num_nodes=2": "trainer.num_nodes=2: Slurm starts a "
    "run on several nodes, one task for each process",
    "pretrain=masked trainer.devices=2": "pretrain with trainer.devices=1, and give that run's folder as pretrain.path",
    "data._target_=pytorch_lightning.Trainer": "is not a subclass of sliceformer_lab.data.base.DataModule",
    "+attention.foo=1": "attention.foo: there is no such option; there are bias_formula",
    "trainer.precision=64-true attention.order=": "given '64-true', should be '32-true', 'bf16-mixed', "
    "'16-mixed' or 'auto'; attention.order: given '', should be 'ascend', 'descend' or 'random'",
    "attention.group_size=two optim.lr=-1": "attention.group_size: given 'two', should be a valid integer; "
    "optim.lr: given -1, should be greater than 0",
    "attention._target_=sliceformer_lab.nope.A": "cannot be loaded (No module named 'sliceformer_lab.nope')",
    "attention=sparse attention.num_summary=50": "attention: num_summary must be within 0..block_size-1 = 49",
    "task.patch_size=3": "task: patch_size=3 does not divide the image of 8 x 8 pixels",
    "published={paper:csp,table:table9,task:cifar10,metric:test/accuracy}": "published: no paper prints",
    "tune task=zinc attention=linformer,mha": "attentions that can: ",
}


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Runs a command line in a temporary folder, checks that it is refused cleanly, and returns its sentence."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLICEFORMER_DATA")
    (tmp_path / "table.csv").write_text("text,label\n")
    (tmp_path / "damaged").mkdir()
    for folder, text in {".": '{"attention": {"csp": {"words": []}}}', "damaged": "[1]"}.items():
        (tmp_path / folder / BEST_FILE).write_text(text)

    def no_data(self: Digits) -> None:
        raise AssertionError("data were read")

    monkeypatch.setattr(Digits, "setup", no_data)
    monkeypatch.setattr(Digits, "prepare_data", no_data)

    def call(line: str) -> str:
        assert main(shlex.split(line)) == 1
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        assert err.count("\n") == 1 and err.startswith("sliceformer-lab: ") and "data were read" not in out + err
        assert line.startswith("-m ") or not files_below(tmp_path / "outputs")
        return out + err

    return call


def assert_says(sentence: str, parts: str | tuple[str, ...]) -> None:
    """All parts are in the sentence."""
    assert [part for part in ((parts,) if isinstance(parts, str) else parts) if part not in sentence] == [], sentence


@pytest.mark.parametrize("line", WITHOUT_TORCH)
def test_a_line_with_impossible_values_is_refused_before_any_class_is_imported(
    line: str, refuse: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    locate = schema.locate

    def no_class(target: str, where: str = "") -> Any:
        assert where == "launcher" or target.startswith("sliceformer_lab.sweeps."), f"{target} was imported"
        return locate(target, where)

    if not line.startswith("benchmark"):  # whose options are classes themselves
        monkeypatch.setattr("sliceformer_lab.config.schema.locate", no_class)
    if line.startswith(("audit", "map")):
        for module in SLOW:
            monkeypatch.setitem(sys.modules, module, None)  # its import would raise
    assert_says(refuse(line), WITHOUT_TORCH[line])


@pytest.mark.parametrize("line", WITH_CLASSES)
def test_a_line_with_impossible_options_is_refused_before_data_are_read(
    line: str, refuse: Callable[[str], str]
) -> None:
    assert_says(refuse(line), WITH_CLASSES[line])


def test_code_named_by_a_file_is_refused_unless_the_command_line_allows_it(
    refuse: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "mine" / "recipe").mkdir(parents=True)
    (tmp_path / "mine" / "recipe" / "mine.yaml").write_text(
        "# @package _global_\nallow_targets: [json.]\nattention:\n  _target_: json.loads\n"
    )
    mine = "--config-dir mine recipe=mine"
    assert "attention._target_: json.loads is code outside the allowed packages" in refuse(mine)
    # with permission it is found, and checked like any other target
    assert "attention._target_: json.loads is not a subclass of" in refuse(f"{mine} allow_targets=[json.]")
    assert "code outside the allowed packages" in refuse(mine), "what one command allows, the next does not"


def test_an_epoch_without_a_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["optim.accumulate=1000", "encoder=tiny", "pictures=false", "reference=null"]) == 1
    assert "1199 training examples do not fill a step of 64000" in capfd.readouterr().err


def test_an_error_of_many_lines_is_one_line_in_the_table_of_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from sliceformer_lab.training import run

    def fail(plan: object, data: object, folder: Path) -> None:
        raise RuntimeError("the first line\n\n  the second line\nthe third")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run", fail)
    assert main(["-m", "encoder=tiny", "seed=0,1"]) == 1
    table = capfd.readouterr().out.partition("\njobs in ")[2].splitlines()[1:]
    assert [line.split("  ", 3)[3] for line in table] == ["RuntimeError: the first line the second line the third"] * 2


def test_missing_data_and_impossible_values_are_told_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text,class\na film,pos\n")
    (tmp_path / "t.txt").write_text("a film,pos\n")
    (tmp_path / "measured.csv").write_text("text,label\n" + "".join(f"film {i},{i / 8}\n" for i in range(40)))
    lines = ["task=text_csv data.file=nope.csv", "task=image_folder data.root=nope", "seed=4294967296", "optim.lr=inf"]
    lines += ["task=text_csv data.file=texts.csv", "task=text_csv data.file=t.txt"]
    rows = [f"film {i},{i / 8},train" for i in range(40)] + [f"film {i},1,test" for i in range(9)]
    (tmp_path / "split.csv").write_text("\n".join(["text,label,split", *rows]))
    lines += ["task=text_csv data.file=split.csv data.split_column=split"]
    lines += ["task=text_csv data.file=measured.csv", "encoder.num_heads=7"]
    code = (
        "import sys; from sliceformer_lab.__main__ import main;"
        f"codes = [main(line.split()) for line in {lines}];"
        "print(codes, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == f"{[1] * len(lines)} False"
    assert "texts.csv has no column 'label'; data.label_column can be one of text, class" in done.stderr
    assert done.stderr.count("label has 40 different numbers in 40 rows, so they are no classes") == 2
    assert "t.txt ends in none of .csv" in done.stderr and not (tmp_path / "outputs").exists()


def test_a_set_that_cannot_be_downloaded_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Digits, "make_splits", no_network)
    assert main(["encoder=tiny", "data.batch_size=null"]) == 1
    assert "no network" in capfd.readouterr().err and not (tmp_path / "outputs").exists()


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def no_network(self: Digits) -> Any:
    raise DataError("no network")


def test_a_deleted_current_folder_is_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r});"
        "from sliceformer_lab.__main__ import main; sys.exit(main(['attention=mha']))"
    )
    done = run_python("-c", code, PYTHONPATH=str(Path(__file__).parents[2]))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the current folder does not exist" in done.stderr


def test_a_run_folder_that_is_deleted_under_a_run_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def set_up_and_delete(self: Digits, stage: str | None = None) -> None:
        set_up(self, stage)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    set_up = Digits.setup
    monkeypatch.setattr(Digits, "setup", set_up_and_delete)
    monkeypatch.chdir(tmp_path)
    assert main(["encoder=tiny", "debug=fast", "hydra.run.dir=run"]) == 1
    printed = capfd.readouterr()
    assert "Traceback" not in printed.out + printed.err
    assert printed.err.splitlines()[-1].startswith("sliceformer-lab: ") and "was deleted" in printed.err
    assert not (tmp_path / "run").exists()
