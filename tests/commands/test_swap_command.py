"""The command `swap` writes a healed model and a report, goes on after a stop, and refuses bad input in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from support.other_process import held_by_another_process
from support.runs import last_of_each
from torch.testing import assert_close

from sliceformer_lab import swap
from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.swap.labelled_task import LabelledTask
from sliceformer_lab.commands.swap.pretrained_model import open_model
from sliceformer_lab.commands.swap.swap_options import SwapOptions
from sliceformer_lab.commands.swap.swap_report import measure
from sliceformer_lab.commands.swap.swap_verdict import TOGETHER, SwapVerdict, verdict_section, verdict_sentence
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.training.heal import Healing, find_blocks

WORDS = ("red", "blue", "dog", "cat", "runs", "sleeps", "under", "tree", "old", "the")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small random BERT of three classes and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 48}
    options = {"vocab_size": 15, "max_position_embeddings": 16, "initializer_range": 0.3, "num_labels": 3}
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, **options)).save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def random_texts(seed: int, count: int) -> list[str]:
    """Texts of 3 to 11 of the WORDS."""
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(3, 12))) for _ in range(count)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.csv"
    file.write_text("\n".join(["text", *random_texts(0, 120)]), encoding="utf-8")
    return file


@pytest.fixture
def line(bert: Path, texts: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """The command line of a swap; a word replaces the one with its key."""
    own = [f"model={bert}", f"data.file={texts}", f"output={tmp_path / 'swapped'}", "lr_layers=3e-3"]
    return lambda *words: ["swap", *last_of_each([*own, *words]), f"paths.outputs={tmp_path / 'logs'}"]


@pytest.fixture
def call(line: Callable[..., list[str]]) -> Callable[..., int]:
    return lambda *words: main(line(*words))


@pytest.fixture
def refuse(line: Callable[..., list[str]], refused: Callable[..., str]) -> Callable[..., str]:
    return lambda *words: refused(*line(*words))


def test_a_text_model_is_swapped_healed_and_written_with_its_classes(
    call: Callable[..., int], bert: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    file = tmp_path / "paragraphs.txt"
    file.write_text("\n\n".join(random_texts(0, 120)))  # an empty line is no text
    assert call(f"data.file={file}", "attention=csp", "attention.group_size=4", "layers=1-2", "passes=4") == 0
    folder = tmp_path / "swapped"
    report = json.loads((folder / "report.json").read_text())
    fidelity = [report["fidelity"][stage] for stage in ("swapped", "layers", "together")]
    assert all(after < 0.8 * before for before, after in zip(*[x["layer_errors"] for x in fidelity[:2]], strict=True))
    assert fidelity[2]["final_error"] < fidelity[1]["final_error"] < fidelity[0]["final_error"]
    assert (report["layers"], report["depth"]) == ([1, 2], 3)
    assert (report["num_inputs"], report["num_held_out"]) == (108, 12)
    opened = swap(transformers.BertForSequenceClassification.from_pretrained(folder)).eval()
    assert opened.config.swapped_attention["1"]["overrides"] == {"group_size": 4}
    original = transformers.BertForSequenceClassification.from_pretrained(bert).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(random_texts(0, 120)[-12:], padding=True, return_tensors="pt")
    same = (opened(**inputs).logits.argmax(1) == original(**inputs).logits.argmax(1)).float().mean()
    assert float(same) == pytest.approx(fidelity[2]["same_class"])
    assert not (folder / "healing.pt").exists()
    assert "csp in layers 1, 2" in (folder / "report.md").read_text()


def test_every_held_out_input_counts_alike_also_those_of_a_smaller_last_batch(bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    opened = open_model(SwapOptions(model=str(bert)))
    student = swap(transformers.BertForSequenceClassification.from_pretrained(bert).eval(), "identity", [0, 1])
    batches = [opened.encode(random_texts(1, 3)), opened.encode(random_texts(2, 1))]
    found = [measure(opened, student, [0, 1], some) for some in (batches, batches[:1], batches[1:])]
    both, three, one = (np.array([each.final_error, *each.layer_errors]) for each in found)
    assert both == pytest.approx((3 * three + one) / 4)


@pytest.mark.parametrize("options", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}], ids=str)
def test_numbers_and_labels_are_compared_as_no_classes(options: dict[str, Any], bert: Path) -> None:
    transformers, opened = pytest.importorskip("transformers"), open_model(SwapOptions(model=str(bert)))
    model = transformers.BertForSequenceClassification(transformers.BertConfig.from_pretrained(bert, **options))
    assert opened.classes(model, opened.encode(random_texts(0, 2))) is None


@pytest.fixture(scope="module")
def whole(bert: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a swap that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    words = [f"model={bert}", f"data.file={texts}", f"output={folder / 'swapped'}", f"paths.outputs={folder}"]
    assert main(["swap", *words, "lr_layers=3e-3", "attention=random_permutation"]) == 0
    return folder / "swapped"


@pytest.fixture
def fail_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Lets healing fail after so many steps, inside a with statement."""

    @contextmanager
    def failing(steps: int) -> Iterator[None]:
        left, step = iter(range(steps)), Healing.step

        def fail_at_last(self: Healing, inputs: Any) -> list[float]:
            if next(left, None) is None:
                raise OSError("no more")
            return step(self, inputs)

        with monkeypatch.context() as patch:
            patch.setattr(Healing, "step", fail_at_last)
            yield

    return failing


@pytest.mark.parametrize("stop", [5, 20])  # in each stage
def test_a_stopped_swap_goes_on_to_the_same_weights(
    stop: int,
    call: Callable[..., int],
    whole: Path,
    texts: Path,
    tmp_path: Path,
    fail_after: Callable[[int], Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    with fail_after(stop):
        assert call("attention=random_permutation") == 1
    assert call("attention=identity") == 1, "another swap in its folder"
    before = texts.read_text()
    texts.write_text(before.replace("dog", "cat"))
    assert call("attention=random_permutation") == 1
    assert "another content of data.file" in capfd.readouterr().err
    texts.write_text(before)
    assert (tmp_path / "swapped" / "healing.pt").exists()
    assert call("attention=random_permutation") == 0
    assert_close(*[load_file(f / "model.safetensors") for f in (tmp_path / "swapped", whole)], rtol=0, atol=0)


def test_two_swaps_into_one_folder_are_refused(refuse: Callable[..., str], tmp_path: Path) -> None:
    output = tmp_path / "swapped"
    with held_by_another_process(lock_folder, output):
        assert "is held by another live process" in refuse("attention=identity")
    assert {file.name for file in output.iterdir()} == {".lock"}


def test_a_vit_of_timm_is_healed_on_a_folder_of_pictures_and_judged_by_its_classes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_vit")
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    generator = np.random.default_rng(0)
    for name, low, high in (("noise", 0, 256), ("classes/dark", 0, 100), ("classes/light", 150, 250)):
        (tmp_path / name).mkdir(parents=True)
        for number in range(20):
            picture = Image.fromarray(generator.integers(low, high, (32, 32, 3), np.uint8))
            picture.save(tmp_path / name / f"{number:02}.png")
    folder, noise, classes = tmp_path / "swapped", tmp_path / "noise", tmp_path / "classes"
    words = ["model=test_vit", f"weights={tmp_path / 'vit.safetensors'}", f"data.file={noise}", "layers=[2,5]"]
    words += [f"labelled.file={classes}", "controls=[]", f"output={folder}", f"paths.outputs={tmp_path / 'logs'}"]
    assert main(["swap", *words, "batch_size=6"]) == 0
    report = json.loads((folder / "report.json").read_text())
    assert report["fidelity"]["layers"]["layer_errors"][0] < report["fidelity"]["swapped"]["layer_errors"][0]
    opened = swap(timm.create_model("test_vit"), "csp", [2, 5])
    opened.load_state_dict(load_file(folder / "model.safetensors"))
    assert not torch.equal(opened.blocks[5].mlp.fc1.weight, model.blocks[5].mlp.fc1.weight)
    accuracy = report["verdict"]["accuracy"]
    assert accuracy["original"]["all"] > 0.9 and list(accuracy["csp"]) == ["top 1", "bottom 1", "all", TOGETHER]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["layers=5-3"], "layers=5-3: give a range such as 0-5"),
        (["layers=7"], "the model has layers 0 to 2; give a list"),
        (["model=no/such"], "there is no such folder; nothing is downloaded"),
        (["model=vit_tiny_patch16_224"], "give weights=FILE, a file of its weights on this machine\n"),
        (["model=vit_tiny_patch16_224", "weights=no.pt"], "on this machine; weights=no.pt is missing\n"),
        (["data.file=missing.csv"], "data.file=missing.csv is missing"),
        (["data.column=body"], "has no column 'body'"),
        (["labelled.file=missing.csv"], "labelled.file=missing.csv is missing"),
        (["labelled.file=TEXTS"], "has no column 'label'; labelled.column and labelled.label can be "),
        (["labelled.file=TEXTS", "controls=[idenity]"], "did you mean identity"),
        (["attention=cps"], "did you mean csp"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    words: list[str], sentence: str, refuse: Callable[..., str], texts: Path, tmp_path: Path
) -> None:
    assert sentence in refuse(*[word.replace("TEXTS", str(texts)) for word in words])
    assert not (tmp_path / "swapped").exists()


def test_an_output_with_other_files_is_left_alone(refuse: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "swapped").mkdir()
    (tmp_path / "swapped" / "mine.txt").write_text("mine")
    assert "holds other files; name a new folder" in refuse()
    assert [file.name for file in (tmp_path / "swapped").iterdir()] == ["mine.txt"]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose label says whether the first word is an animal."""
    file = tmp_path_factory.mktemp("labelled") / "labelled.csv"
    rows = [f"{text},{text.split()[0] in ('dog', 'cat')}" for text in random_texts(1, 160)]
    file.write_text("\n".join(["text,label", *rows]))
    return file


def test_a_verdict_compares_the_swap_with_controls_healed_alike_by_layers(
    call: Callable[..., int], labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"labelled.file={labelled}", "controls=[identity]", "labelled.limit=150"]
    assert call("attention=csp", *words) == 0
    folder = tmp_path / "swapped"
    report = json.loads((folder / "report.json").read_text())["verdict"]
    sets = ["top 1", "top 2", "bottom 1", "bottom 2", "all", "all, together"]
    assert {row: list(found) for row, found in report["accuracy"].items()} == {
        "csp": sets, "identity": sets, "original": ["all"]
    }  # fmt: skip
    assert all(len(right) == 75 for found in report["correct"].values() for right in found.values())
    assert report["sentence"].replace("**", "").replace("`", "") in capsys.readouterr().out
    page = (folder / "report.md").read_text()
    assert "| `csp` minus | points | p (Holm) |" in page and "| `identity` |" in page and "| original |" in page
    assert {file.name for file in folder.iterdir()} & {"controls", "healing.pt"} == set()
    assert call(f"output={tmp_path / 'alone'}", "attention=identity") == 0
    alone = json.loads((tmp_path / "alone" / "report.json").read_text())
    assert "verdict" not in alone and "give labelled.file" in (tmp_path / "alone" / "report.md").read_text()


def test_a_verdict_that_was_stopped_in_a_control_goes_on_to_the_same_numbers(
    call: Callable[..., int], labelled: Path, tmp_path: Path, fail_after: Callable[[int], Any]
) -> None:
    words = [f"labelled.file={labelled}", "labelled.limit=60", "attention=csp", "controls=[random_permutation]"]
    assert call(*words, f"output={tmp_path / 'whole'}") == 0
    with fail_after(2 * 14 + 4):  # 14 steps a stage
        assert call(*words) == 1
    assert (tmp_path / "swapped" / "controls" / "random_permutation" / "healing.pt").exists()
    assert call(*words) == 0
    one, other = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("swapped", "whole"))
    assert one["verdict"] == other["verdict"]
    assert_close(*[load_file(tmp_path / name / "model.safetensors") for name in ("swapped", "whole")], rtol=0, atol=0)


def test_every_scored_text_has_its_own_label_and_the_limit_holds(call: Callable[..., int], tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    counts = generator.choice([3, 11], 160)
    rows = [f"{' '.join(generator.choice(WORDS, count))},{count}" for count in counts]
    (tmp_path / "lengths.csv").write_text("\n".join(["text,label", *rows]))
    assert call(f"labelled.file={tmp_path / 'lengths.csv'}", "controls=[]", "data.limit=20") == 0
    report = json.loads((tmp_path / "swapped" / "report.json").read_text())
    assert report["verdict"]["accuracy"]["original"]["all"] > 0.8
    assert (report["num_inputs"], report["num_held_out"]) == (20, 8), "of the first 84 of 120 texts"


@pytest.mark.parametrize(
    "row", ['{"text": "red dog", "label": null}', '{"text": " ", "label": "a"}', '{"text": "red", "label": " "}']
)
def test_a_row_without_text_or_label_is_named_and_never_a_class_of_its_own(
    row: str, refuse: Callable[..., str], tmp_path: Path
) -> None:
    rows = [json.dumps({"text": f"{word} dog", "label": word[0]}) for word in WORDS * 5]
    (tmp_path / "labelled.jsonl").write_text("\n".join([*rows, row]))
    assert re.search("line 51.*give a text and its label", refuse(f"labelled.file={tmp_path / 'labelled.jsonl'}"))
    assert not (tmp_path / "swapped").exists()


def test_a_set_of_layers_is_scored_with_the_blocks_of_the_original_elsewhere(
    call: Callable[..., int], labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[str] = []  # + for each swapped layer

    def correct(task: LabelledTask, model: Any) -> np.ndarray:
        blocks = find_blocks(task.opened.trunk(model))
        scored.append("".join("-+"[hasattr(block.attention.self, "mixer")] for block in blocks))
        return np.ones(task.num_scored, dtype=bool)

    monkeypatch.setattr(LabelledTask, "correct", correct)
    assert call(f"labelled.file={labelled}", "controls=[]") == 0
    assert scored == ["--+", "-++", "+--", "++-", "+++", "+++", "---"], "top 1, 2, bottom 1, 2, all, healed, original"


@pytest.mark.parametrize("side", ["csp", "identity", "neither"])
def test_the_sentence_of_a_verdict_names_what_was_lost_and_against_what(side: str) -> None:
    generator = np.random.default_rng(0)
    right = {name: generator.random(2000) < (0.9 if name == side else 0.7) for name in ("csp", "identity")}
    rows = {name: {"top 1": one, "bottom 1": one, "all": one, TOGETHER: one} for name, one in right.items()}
    sentence = verdict_sentence(SwapVerdict(generator.random(2000) < 0.9, rows, 2000, 2))
    verb = {"csp": "is better than", "identity": "is worse than", "neither": "is not shown to be better than"}[side]
    assert f"it {verb} `identity`" in sentence
    assert ("loses accuracy" in sentence) == (side != "csp")
    assert f"{2 if side == 'csp' else 0} from the top" in sentence


def test_a_swap_that_changes_no_answer_has_no_p_and_is_not_shown_to_cost_accuracy() -> None:
    right = np.arange(2000) % 10 > 0
    sets = {"top 1": right, "bottom 1": right, "all": right, TOGETHER: right}
    found = SwapVerdict(right, {"csp": sets, "identity": sets}, 2000, 2)
    assert [p for _, p in found.less().values()] == [None, None]
    assert "`csp` is not shown to cost accuracy" in verdict_sentence(found)
    assert "| `identity` | +0.00 ± 0.00 | – |" in " ".join(verdict_section(found).split())
