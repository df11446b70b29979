"""Segmentation of images: the class of every pixel from the token of its patch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex
from torchmetrics.functional.classification import multiclass_confusion_matrix

from sliceformer_lab.batch import NO_CLASS, Batch
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.images.image_pairs import resize_mask
from sliceformer_lab.data.spec import Content
from sliceformer_lab.encoder.embed import Stem
from sliceformer_lab.encoder.linear_init import initialise_head
from sliceformer_lab.measures.pixel_forest import PixelForest
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.patches import PatchTask, patch_for
from sliceformer_lab.training.results.predicted import Names, ScoredSplit, TableRow, names_or_numbers, seven_digits

AUTO_PATCHES_PER_SIDE = 16  # patches on the shorter side that patch_size=null aims at
MAX_COLUMNS = 100  # classes with a column each
MAX_MASKS = 5  # in the picture


class ImageSegmentation(PatchTask):
    """Classes of pixels from any attention. Images (B, c, H, W) -> logits (B, classes, H, W).

    A layer norm and one linear map give each patch the logits of its classes, which are interpolated to pixels
    (bilinear): the linear decoder of Segmenter (Strudel et al. 2021, section 3.2). Theirs follows a pretrained ViT
    with a CLS token; here there is none. `patch_size` null means `patch_for` the image. Raises ValueError if the patch
    does not divide the image.
    """

    monitor = "mean_iou"
    kept_type = torch.uint8

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        patch_size: Count | None,
        stem: Stem = "patch",
    ) -> None:
        super().__init__(model, data)
        spec = self.data_spec
        if spec.image_size is None or spec.targets != "pixels":
            raise ValueError(f"{spec.name} has no images with a class for each pixel; choose another task for it")
        patch_size = patch_size or patch_for(spec.image_size, AUTO_PATCHES_PER_SIDE)
        self.build_encoder(patch_size, stem, cls=False)
        self.norm = nn.LayerNorm(self.dim)
        self.head = nn.Linear(self.dim, spec.num_classes)
        initialise_head(self.head, self.encoder.options)

    def build_metrics(self) -> MetricCollection:
        """Mean IoU of the whole split over the classes that occur, and the accuracy over pixels."""
        classes = self.data_spec.num_classes
        iou = MulticlassJaccardIndex(classes, ignore_index=NO_CLASS)
        accuracy = MulticlassAccuracy(classes, average="micro", ignore_index=NO_CLASS)
        return MetricCollection({"mean_iou": iou, "accuracy": accuracy}, compute_groups=False)

    def forward(self, batch: Batch) -> Tensor:
        """Images (B, c, H, W) -> logits (B, classes, H, W)."""
        tokens = self.encoder(self.embedding(batch.inputs))
        if self.embedding.order is not None:
            tokens = tokens[:, self.embedding.order.argsort()]
        logits = self.head(self.norm(tokens)).transpose(1, 2).unflatten(2, self.embedding.grid)
        return functional.interpolate(logits, size=self.data_spec.image_size, mode="bilinear")

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy, the mean over the pixels with a class; zero if there are none."""
        # flat, because the two-dimensional form is not deterministic on a GPU
        logits, classes = output.movedim(1, -1).flatten(0, -2), target.flatten()
        total = functional.cross_entropy(logits, classes, ignore_index=NO_CLASS, reduction="sum")
        return total / (classes != NO_CLASS).sum().clamp_min(1)

    def kept(self, output: Tensor, batch: Batch) -> Tensor:
        """The most likely class of each pixel (B, H, W)."""
        return output.argmax(dim=1)

    def chance(self, targets: Tensor) -> float:
        """Mean IoU of predicting the commonest class at each place of the image."""
        guess = commonest_class(targets).expand_as(targets)
        return float(class_iou(guess, targets, self.data_spec.num_classes).nanmean())

    def more_results(self, data: DataModule, predictions: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
        """Test IoU of each class by its name; None for a class that does not occur."""
        if "test" not in predictions:
            return {}
        test = predictions["test"]
        found = class_iou(test["logits"], test["targets"], self.data_spec.num_classes)
        values = [None if value != value else value for value in found.tolist()]
        return {"iou_by_class": dict(zip(data.class_names(), values, strict=True))}

    def columns(self, names: Names) -> tuple[str, ...]:
        return tuple(self.outcomes(torch.zeros(1, 1, 1), names)[0])

    def outcomes(self, outputs: Tensor, names: Names) -> list[TableRow]:
        """The mask (H, W) uint8, and the share of the pixels that each class has, from masks (n, H, W)."""
        return [{"mask": mask} | _count_shares(mask, names) for mask in outputs.numpy().astype(np.uint8)]

    def at_input_size(self, outcome: TableRow, content: Content) -> TableRow:
        """The outcome with a mask as large as the picture."""
        height, width, *_ = np.asarray(content).shape
        return outcome | {"mask": resize_mask(outcome["mask"], (height, width))}

    def pictures(self, scored: ScoredSplit) -> Mapping[str, Callable[[Path], None]]:
        return {"masks.png": partial(_draw_masks, scored)}

    def constant(self, targets: Tensor) -> tuple[str, Tensor]:
        """The commonest class at each place of the image (H, W)."""
        return "commonest class at each pixel", commonest_class(targets)

    def simple_models(self, data: DataModule, num_train: int) -> list[PixelForest]:
        return [PixelForest()]


def commonest_class(targets: Tensor) -> Tensor:
    """The commonest class at each place of masks (n, H, W): (H, W). Places without any have the commonest of all."""
    known = targets != NO_CLASS
    classes = int(targets.max().clamp_min(0)) + 1
    counts = torch.stack([(targets == one).sum(dim=0) for one in range(classes)])  # (K, H, W)
    overall = targets[known].bincount(minlength=classes)
    return torch.where(counts.sum(dim=0) > 0, counts.argmax(dim=0), overall.argmax())


def class_iou(predicted: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """Intersection over union (K,) of each class in masks (n, H, W); NaN for a class that does not occur."""
    matrix = multiclass_confusion_matrix(predicted.long(), target.long(), num_classes, ignore_index=NO_CLASS)
    both = matrix.diagonal()
    either = matrix.sum(dim=0) + matrix.sum(dim=1) - both
    return torch.where(either > 0, both / either.clamp_min(1), torch.nan)


def _count_shares(mask: np.ndarray, names: Names) -> TableRow:
    if len(names.classes) > MAX_COLUMNS:
        return {}
    counts = np.bincount(mask.ravel(), minlength=len(names.classes)) / mask.size
    return {f"share_{name}": seven_digits(count) for name, count in zip(names.classes, counts.tolist(), strict=True)}


def _draw_masks(scored: ScoredSplit, path: Path) -> None:
    """Image, true and predicted mask of some examples, evenly from the worst to the best."""
    from sliceformer_lab.measures.drawing import names_in_picture
    from sliceformer_lab.measures.mask_plots import Segmented, plot_masks

    targets, outputs = scored.targets, scored.outputs.astype(np.int64)
    known = (targets >= 0).sum(axis=(1, 2))
    right = (targets == outputs).sum(axis=(1, 2)) / np.maximum(known, 1)
    with_classes = np.flatnonzero(known)
    order = with_classes[np.argsort(right[with_classes], kind="stable")]
    if not len(order):
        return
    chosen = order[np.unique(np.linspace(0, len(order) - 1, MAX_MASKS).round().astype(int))]
    shown = [
        Segmented(example.place, np.asarray(example.content), targets[i], outputs[i], f"{right[i]:.0%} of pixels right")
        for i, example in zip(chosen, scored.examples(chosen), strict=True)
    ]
    total = (targets == outputs).sum() / known.sum()
    title = (
        f"{scored.title}: {100 * total:.1f} % of the pixels of {len(targets):,} images are right; "
        f"{len(shown)}, worst to best"
    )
    names, remark = names_in_picture(names_or_numbers(scored.data.class_names(), scored.data.spec.num_classes))
    plot_masks(shown, names, path, title + remark)
