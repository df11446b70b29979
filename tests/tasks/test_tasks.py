"""The parts of a task around the encoder: tokens, head, losses, metrics, and self-contained checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from support.plans import run, small_task
from support.runs import small_config
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import Tensor, nn

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.tasks.image import AUTO_PATCHES_PER_SIDE, ImageClassification
from sliceformer_lab.tasks.patches import patch_for
from sliceformer_lab.tasks.targets import Labels, Numbers
from sliceformer_lab.training.saved.saved_run import load_run

DIGITS = DataSpec(name="digits", num_classes=10, image_size=(8, 8), channels=1)
PICTURES = DataSpec(name="mine", num_classes=3, image_size=(64, 64), channels=3)
TEXTS = DataSpec(name="mine", num_classes=3, max_len=100, vocab_size=300, ragged=True)
POOLED = {"digits": DIGITS, "image_folder": PICTURES, "text_csv": TEXTS, "lra_retrieval": TEXTS}


def image_task(*overrides: str, data: DataSpec = DIGITS) -> ImageClassification:
    task: ImageClassification = small_task(*overrides, data=data)
    return task


def batch(size: int = 6, classes: int = 10) -> Batch:
    target = torch.arange(size) % classes
    return Batch(torch.randn(size, 1, 8, 8), target, torch.arange(size))


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize("name", POOLED)
def test_num_tokens_is_the_number_that_reaches_the_encoder(name: str, pool: str) -> None:
    task = small_task("attention=identity", f"task={name}", f"task.pool={pool}", data=POOLED[name])
    seen: list[int] = []
    task.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    with torch.no_grad():
        task(task.example())
    assert seen == [task.num_tokens()]


@pytest.mark.parametrize("option", ["task.label_smoothing=0.1", "task.mixup=0.8", "task.cutmix=1.0"])
def test_regularisation_adds_no_parameter_and_nothing_to_the_state(option: str) -> None:
    assert image_task(option).state_dict().keys() == image_task().state_dict().keys()


def test_losses_are_timms_with_smoothing_in_training_alone_and_once() -> None:
    task = image_task("task.label_smoothing=0.1")
    logits, target = torch.randn(7, 10), torch.arange(7)
    expected = LabelSmoothingCrossEntropy(0.1)(logits, target)
    torch.testing.assert_close(task.loss(logits, target), expected)
    torch.testing.assert_close(task.evaluation_loss(logits, target), nn.functional.cross_entropy(logits, target))
    mixed, soft = image_task("task.label_smoothing=0.1", "task.mixup=0.8"), torch.rand(7, 10).softmax(1)
    torch.testing.assert_close(mixed.loss(logits, soft), SoftTargetCrossEntropy()(logits, soft))


def trained_on(task: ImageClassification, given: Batch, monkeypatch: pytest.MonkeyPatch) -> Batch:
    """What reaches the model in a training step."""
    seen: list[Batch] = []
    monkeypatch.setattr("sliceformer_lab.tasks.base.Task.training_step", lambda self, batch, _: seen.append(batch))
    task.training_step(given, 0)
    return seen[0]


@pytest.mark.parametrize("option", ["task.mixup=0.8", "task.cutmix=1.0"])
def test_mixing_blends_pictures_and_targets_alike_in_even_batches(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = batch(size=5)
    assert trained_on(image_task(option), odd, monkeypatch) is odd
    given = batch()
    pictures = given.inputs.clone()
    mixed = trained_on(image_task(option), given, monkeypatch)
    assert mixed.target.shape == (6, 10)
    torch.testing.assert_close(mixed.target.sum(1), torch.ones(6))
    share = mixed.target[0, 0]  # of the first picture, which was mixed with the last
    torch.testing.assert_close(mixed.target[0, 5], 1 - share)
    if "mixup" in option:
        torch.testing.assert_close(mixed.inputs, share * pictures + (1 - share) * pictures.flip(0))
    else:
        kept = (mixed.inputs[0] == pictures[0]).float().mean()
        torch.testing.assert_close(kept, share)


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (2, {"accuracy", "f1", "auc"}),
        (5, {"accuracy", "f1", "auc"}),
        (6, {"accuracy", "accuracy_top5", "f1", "auc"}),
        (101, {"accuracy", "accuracy_top5", "f1"}),
    ],
)
def test_top5_accuracy_needs_more_than_five_classes_and_auc_at_most_a_hundred(classes: int, names: set[str]) -> None:
    data = DataSpec(name="digits", num_classes=classes, image_size=(8, 8), channels=1)
    assert set(image_task(data=data).build_metrics().keys()) == names


def test_metrics_are_shares_of_examples() -> None:
    logits = torch.tensor([[9.0, 8, 7, 6, 5, 4], [4.0, 5, 6, 7, 8, 9], [9.0, 8, 7, 6, 5, 4]])
    metrics = image_task(data=DataSpec(name="six", num_classes=6, image_size=(8, 8), channels=1)).build_metrics()
    found = metrics(logits, torch.tensor([0, 4, 5]))
    # F1 is 2/3, 0, 0 for the classes 0, 4, 5. AUC: the example of class 0 is above one other and ties with the second,
    # that of class 4 is above both, that of class 5 ties with one.
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {"accuracy": 1 / 3, "accuracy_top5": 2 / 3, "f1": 2 / 9, "auc": (0.75 + 1 + 0.25) / 3}
    )


def test_chance_is_the_score_of_the_best_constant() -> None:
    assert image_task().chance(torch.tensor([3, 3, 1, 0])) == 0.5
    targets = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)).exp()  # skewed: the mean is not the best
    targets[::7, 1] = torch.nan
    known = [column[~column.isnan()] for column in targets.T]
    least = [min((column - constant).abs().sum() for constant in column) for column in known]
    best = float(sum(least) / sum(map(len, known)))
    assert Numbers().chance(targets) == pytest.approx(best)
    name, constant = Numbers().constant(targets)
    assert name == "training median" and float((targets - constant).abs().nanmean()) == pytest.approx(best)


def test_the_constant_of_labels_has_their_frequencies_rare_ones_too() -> None:
    labels = torch.zeros(1000, 3)
    labels[:3, 0], labels[:400, 1], labels[::2, 2] = 1, 1, torch.nan
    _, constant = Labels().constant(labels)
    torch.testing.assert_close(constant.sigmoid(), torch.tensor([0.003, 0.4, 0.0]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("pool", ["ref_min", "ref_max"])
def test_reference_pooling_takes_the_extreme_token_of_the_last_sort(pool: str) -> None:
    task = image_task("attention=csp_reference", f"task.pool={pool}").eval()
    pooled: list[tuple[Tensor, Tensor, Tensor]] = []
    task.pool.register_forward_hook(
        lambda _, args, options, out: pooled.append((args[0], options["reference"], out)), with_kwargs=True
    )
    with torch.no_grad():
        assert task(batch()).shape == (6, 10)
    tokens, reference, out = pooled[0]
    best = reference.argmin(1) if pool == "ref_min" else reference.argmax(1)
    torch.testing.assert_close(out, tokens[torch.arange(6), best])


def test_checkpoint_alone_rebuilds_the_model(tmp_path: Path) -> None:
    run(small_config("attention=hybrid", "attention.pattern=[csp,mha]", "task.pool=cls"), tmp_path)
    file = tmp_path / "checkpoints" / "best.ckpt"
    task = ImageClassification.load_from_checkpoint(file, weights_only=True).eval()
    found = load_run(tmp_path).model
    given = batch()
    with torch.no_grad():
        torch.testing.assert_close(task(given), found(given), rtol=0, atol=0)
    assert plain(torch.load(file, weights_only=True))


def plain(value: Any) -> bool:
    """Whether a checkpoint's value is made of tensors, plain containers and numbers only."""
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and plain(part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return all(plain(part) for part in value)
    return value is None or isinstance(value, Tensor | str | int | float | bool)


@pytest.mark.parametrize(
    ("image_size", "patch"), [((28, 28), 4), ((32, 32), 4), ((64, 64), 8), ((8, 8), 1), ((16, 32), 2), ((224, 224), 28)]
)
def test_a_patch_left_open_gives_about_eight_patches_a_side(image_size: tuple[int, int], patch: int) -> None:
    assert patch_for(image_size, AUTO_PATCHES_PER_SIDE) == patch


def test_pretrained_weights_start_a_task_on_own_images(tmp_path: Path) -> None:
    name = "vit_tiny_patch16_224"
    torch.manual_seed(0)
    trained = timm.create_model(name, img_size=32, embed_dim=64, depth=2, num_heads=4, mlp_ratio=2)
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    words = ["task=image_folder", "block=vit_timm", f"encoder.init=timm:{name}", "task.patch_size=16", "task.pool=cls"]
    words += [f"encoder.init_file={tmp_path / 'weights.pth'}", "data.image_size=32"]
    data = DataSpec(name="mine", num_classes=3, image_size=(32, 32), channels=3)
    model = image_task(*words, "task.stem=patch", data=data)
    model.initialise()
    torch.testing.assert_close(model.state_dict()["embedding.patches.proj.weight"], trained.patch_embed.proj.weight)
    torch.testing.assert_close(model.state_dict()["encoder.blocks.1.mlp.fc1.weight"], trained.blocks[1].mlp.fc1.weight)
    with pytest.raises(ConfigError, match="set stem=patch"):
        image_task(*words, "task.stem=conv", data=data)
