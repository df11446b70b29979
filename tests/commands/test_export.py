"""Exported models give the outputs of the run's model, and say how they were made."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnxruntime
import pytest
import torch
from support import official_files
from support.run_folders import read_summary
from support.runs import last_of_each

from sliceformer_lab import load_export, load_run
from sliceformer_lab.__main__ import main
from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.commands.export import write_export
from sliceformer_lab.commands.export.write_export import BATCHES
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.permute import shift_sort
from sliceformer_lab.permute.exported import decomposed, slice_shifts
from sliceformer_lab.runs.files import write_json

SMALL = ("encoder=tiny", "optim.epochs=1", "callbacks=minimal", "pictures=false", "reference=null")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def call(*words: str) -> Path:
        folder = tmp_path_factory.mktemp("run") / "run"
        assert main(last_of_each([*SMALL, *words, f"hydra.run.dir={folder}"])) == 0
        return folder

    return call


@pytest.fixture(scope="module")
def run(train: Callable[..., Path]) -> Path:
    """A run of CSP and Sliceformer on a few digits."""
    few = ("data.limit_train=64", "data.limit_eval=64")
    return train("attention=hybrid", "attention.pattern=[csp,sliceformer]", "encoder.depth=2", *few)


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(count))


def expected(run: Path, inputs: torch.Tensor) -> torch.Tensor:
    none = torch.zeros(len(inputs), dtype=torch.long)
    with torch.no_grad():
        return load_run(run).model(Batch(inputs, none, none))


def run_onnx(folder: Path, *inputs: torch.Tensor) -> torch.Tensor:
    """The outputs that ONNX Runtime computes from the file in a folder."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [value.name for value in session.get_inputs()]
    given = {name: values.numpy() for name, values in zip(names, inputs, strict=True)}
    return torch.from_numpy(session.run(None, given)[0])


def test_safetensors_and_configuration_load_back(
    run: Path, refused: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", f"resume={run}"]) == 0
    folder = run / "export" / "safetensors"
    assert str(folder) in capfd.readouterr().out
    none = torch.zeros(4, dtype=torch.long)
    outputs = load_export(folder)(Batch(images(4), none, none))
    torch.testing.assert_close(outputs, expected(run, images(4)), rtol=0, atol=0)
    card = (folder / "README.md").read_text()
    for fact in (
        "| seeds | seed 0, split seed 0 |",
        "| test/accuracy |",
        "pattern=['csp', 'sliceformer']",
        "load_export",
    ):
        assert fact in card
    assert "this folder exists already; name a new one" in refused("export", f"resume={run}")
    with pytest.raises(RunFolderError, match="holds no exported model"):
        load_export(run)


def test_torch_program_needs_no_operator_of_ours(run: Path, tmp_path: Path) -> None:
    assert main(["export", f"resume={run}", "format=torch_export", f"output={tmp_path / 'model'}"]) == 0
    program = torch.export.load(tmp_path / "model" / "model.pt2")
    assert not [node.target for node in program.graph.nodes if "sliceformer_lab" in str(node.target)]
    for count in (1, 7):
        torch.testing.assert_close(program.module()(images(count)), expected(run, images(count)))


def test_onnx_runtime_gives_the_same_outputs(run: Path) -> None:
    assert main(["export", f"resume={run}", "format=onnx"]) == 0
    for count in (1, 7):
        outputs = run_onnx(run / "export" / "onnx", images(count))
        torch.testing.assert_close(outputs, expected(run, images(count)), atol=1e-5, rtol=1e-7)


def test_executorch_gives_the_same_outputs_for_one_input_at_a_time(run: Path) -> None:
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    assert main(["export", f"resume={run}", "format=executorch"]) == 0
    folder = run / "export" / "executorch"
    method = runtime.load_program(folder / "model.pte").load_method("forward")
    for image in images(3).split(1):
        torch.testing.assert_close(method.execute([image])[0], expected(run, image))
    card = (folder / "README.md").read_text()
    assert "`inputs` (1, 1, 8, 8) float32" in card and "Inputs come one at a time." in card


def test_executorch_takes_texts_of_one_length_with_padding(
    train: Callable[..., Path], texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    run = text_run(train, texts, "attention=hybrid", "attention.pattern=[csp,sliceformer]", "encoder.depth=2")
    assert main(["export", f"resume={run}", "format=executorch", f"output={tmp_path / 'model'}"]) == 0
    assert "Inputs have exactly 20 tokens" in capsys.readouterr().out
    method = runtime.load_program(tmp_path / "model" / "model.pte").load_method("forward")
    for length in (20, 1, 7):
        ids, lengths = padded_texts([length], 20)
        torch.testing.assert_close(method.execute([ids, lengths])[0], expected_of_texts(run, ids, lengths))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("attention=csp", "attention.reference=channel0"), "no operator aten.sort.stable); csp and sliceformer with"),
        (("attention=fnet",), "no operator aten._fft"),
    ],
)
def test_an_operator_that_executorch_lacks_is_named(
    words: tuple[str, ...], reason: str, train: Callable[..., Path], tmp_path: Path, refused: Callable[..., str]
) -> None:
    pytest.importorskip("executorch.runtime")
    run = train(*words, "encoder.depth=1", "data.limit_train=64", "data.limit_eval=64")
    assert reason in refused("export", f"resume={run}", "format=executorch", f"output={tmp_path / 'model'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("form", "module", "extra"), [("onnx", "onnx", "export"), ("executorch",) * 3])
def test_a_package_that_cannot_be_imported_is_named_with_its_error_and_the_way_to_mend_it(
    form: str, module: str, extra: str, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages" / module).mkdir(parents=True)
    (tmp_path / "packages" / module / "__init__.py").write_text("raise OSError('libtorch.so:\\n wrong version')")
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    sentence = refused("export", f"resume={tmp_path / 'none'}", f"format={form}", f"output={tmp_path / 'model'}")
    reason = "which is installed but cannot be imported (OSError: libtorch.so: wrong version)"
    repair = f"run pip install 'sliceformer-lab[{extra}]' --force-reinstall"
    assert sentence.endswith(f": format={form} needs {module}, {reason}; {repair}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["packages"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return official_files.texts(tmp_path_factory.mktemp("texts"))


def text_run(train: Callable[..., Path], table: Path, *words: str) -> Path:
    own = ("task=text_csv", f"data.file={table}", f"data.root={table.parent}", "data.max_len=20", "data.tokens=bytes")
    return train(*own, "encoder.dim=16", "encoder.depth=1", *words)


def padded_texts(lengths: list[int], num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (B, N) with 0 as padding, and their lengths (B,)."""
    ids = torch.randint(1, 257, (len(lengths), num_tokens), generator=torch.Generator().manual_seed(num_tokens))
    real = torch.tensor(lengths)
    return ids.masked_fill(torch.arange(num_tokens) >= real[:, None], 0), real


def expected_of_texts(run: Path, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return load_run(run).model(Batch.unlabelled(ids, Padding.from_lengths(lengths, ids.shape[1])))


def test_onnx_takes_texts_of_every_length_with_padding(train: Callable[..., Path], texts: Path, tmp_path: Path) -> None:
    """One model has a layer of each operator that takes them."""
    layers = "attention.pattern=[mha,csp,csp_head_block,sliceformer,linear]"
    run = text_run(train, texts, "attention=hybrid", layers, "encoder.depth=5")
    assert main(["export", f"resume={run}", "format=onnx", f"output={tmp_path / 'model'}"]) == 0
    for num_tokens in (2, 3, 7, 12, 20):
        given = padded_texts([num_tokens, 1, num_tokens - 1], num_tokens)
        outputs = run_onnx(tmp_path / "model", *given)
        torch.testing.assert_close(outputs, expected_of_texts(run, *given), atol=1e-5, rtol=1e-7)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "`inputs` (B, N) int64" in card and "Inputs have 2 to 20 tokens, padding included" in card


@pytest.mark.slow
def test_an_operator_without_free_lengths_has_one_and_the_card_says_so(
    train: Callable[..., Path], texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = text_run(train, texts, "attention=mega")
    assert main(["export", f"resume={run}", "format=onnx", f"output={tmp_path / 'model'}"]) == 0
    fixed = "Inputs have exactly 20 tokens, padding included: fill up shorter ones."
    assert fixed in (tmp_path / "model" / "README.md").read_text() and fixed in capsys.readouterr().out
    given = padded_texts([20, 1, 7], 20)
    outputs = run_onnx(tmp_path / "model", *given)
    torch.testing.assert_close(outputs, expected_of_texts(run, *given), atol=1e-5, rtol=1e-7)


def test_outputs_are_numbers_in_their_own_unit_and_an_error_counts_beside_their_deviation(
    train: Callable[..., Path], tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "years.csv"
    table.write_text("text,year\n" + "".join(f"{'word ' * (i % 7)}Zoë {i},{2000 + i % 7}\n" for i in range(60)))
    run = text_run(train, table, "attention=csp", "data.targets=[year]")
    assert main(["export", f"resume={run}", f"output={tmp_path / 'model'}"]) == 0
    card = (tmp_path / "model" / "README.md").read_text()
    assert "its UTF-8 bytes plus 1. Cut them to 20 and fill up with 0" in card and "in their own unit" in card
    text, row = "Zoë", [0] * 12
    row[: len(text.encode())] = [byte + 1 for byte in text.encode()]
    padding = Padding.from_lengths(torch.tensor([4]), len(row))
    outputs = load_export(tmp_path / "model")(Batch.unlabelled(torch.tensor([row]), padding))
    assert float(outputs) == pytest.approx(load_run(run).predict([text])["prediction_year"][0], abs=1e-3)

    def add_a_tenth(predict: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        return predict(*inputs) + 0.1

    write = write_export.write_program
    monkeypatch.setattr(write_export, "write_program", lambda *to: partial(add_a_tenth, write(*to)))
    words = ("export", f"resume={run}", "format=torch_export", f"output={tmp_path / 'wrong'}")
    assert "standard deviations, more than 1e-04" in refused(*words)


def test_a_file_that_computes_other_outputs_is_refused_even_in_a_later_batch_only(
    run: Path, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_wrong_program(program: object, file: Path) -> Callable[[torch.Tensor], torch.Tensor]:
        file.touch()
        return lambda inputs: expected(run, inputs) * (1.0 if len(inputs) < max(BATCHES) else torch.nan)

    monkeypatch.setattr(write_export, "exported", lambda *_, **options: None)
    monkeypatch.setattr(write_export, "write_program", write_wrong_program)
    words = ("export", f"resume={run}", "format=torch_export", f"output={tmp_path / 'model'}")
    assert "differs from the run's by nan" in refused(*words) and list(tmp_path.iterdir()) == []


def test_the_card_of_a_probe_counts_no_training_examples(train: Callable[..., Path]) -> None:
    steps = ("optim.epochs=null", "optim.steps=2", "optim.val_every=2", "optim.warmup_steps=0")
    run = train("task=probe_count", "data.level=easy", *steps)
    assert main(["export", f"resume={run}"]) == 0
    card = (run / "export" / "safetensors" / "README.md").read_text()
    assert "probe" in card and "training examples" not in card


def test_a_run_that_was_stopped_before_its_score_is_not_exported(
    run: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("export"))
    summary = read_summary(run)
    del summary["metrics"]
    write_json(run / "summary.json", summary | {"status": "interrupted"})
    assert "a run that has scored no model (interrupted); continue it with" in refused("export", f"resume={run}")
    assert not (run / "export").exists()


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("group_size", [1, 2, 3, 4, 8, 16, 13])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("longest_network", [0, 8, 16])
def test_decomposed_operator_equals_the_operator(
    group_size: int, padded: bool, reference: bool, longest_network: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    v = torch.randint(-3, 4, (3, 13, 6), generator=generator).float()  # with ties
    v[v.abs() == 3] *= torch.inf  # beside padding, which sorts as infinity
    steps = torch.arange(6) * 5
    lengths = torch.tensor([13, 1, 8]) if padded else None
    down = torch.rand(-(-13 // group_size), 6, generator=generator) < 0.5
    given = (v, steps, lengths, down, group_size, reference, None, False)
    wanted = shift_sort(v, steps, group_size=group_size, lengths=lengths, descending=down, reference=reference)
    moved = decomposed(*given, longest_network=longest_network)[0]
    torch.testing.assert_close(moved, wanted, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("group_size", "longest_network", "sorts"),
    [(2, 0, 0), (4, 0, 0), (None, 12, 1), (3, 13, 0), (None, 13, 0)],
)
def test_small_groups_and_networks_are_exported_without_a_sort_and_all_tokens_without_a_stable_one(
    group_size: int | None, longest_network: int, sorts: int
) -> None:
    lengths = torch.tensor([13, 1, 8]) if group_size == 4 else None

    class Mixer(torch.nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return shift_sort(v, torch.arange(6) * 5, group_size=group_size, lengths=lengths)

    program = torch.export.export(Mixer(), (torch.randn(3, 13, 6),))
    operator = partial(decomposed, longest_network=longest_network)
    plain = program.run_decompositions({torch.ops.sliceformer_lab.shift_sort.default: operator})
    found = [str(node.target) for node in plain.graph.nodes if "sort" in str(node.target)]
    assert found == ["aten.sort.default"] * sorts
    v = torch.randn(3, 13, 6)
    torch.testing.assert_close(plain.module()(v), Mixer()(v), rtol=0, atol=0)


@pytest.mark.parametrize(("group_size", "factor"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_shifts_by_steps_of_a_buffer_are_exported_as_slices_and_by_computed_steps_as_a_gather(
    group_size: int, factor: int
) -> None:
    class Mixer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.tensor([0, 1, 12, 13, 14, 40], dtype=torch.int32))

        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return shift_sort(v, self.steps if factor == 1 else self.steps * factor, group_size=group_size)

    v = torch.randn(1, 13, 6, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(Mixer(), (v,))
    slice_shifts(program)
    operator = partial(decomposed, longest_network=13)
    plain = program.run_decompositions({torch.ops.sliceformer_lab.shift_sort.default: operator})
    assert any("gather" in str(node.target) for node in plain.graph.nodes) == (factor > 1)
    torch.testing.assert_close(plain.module()(v), Mixer()(v), rtol=0, atol=0)
