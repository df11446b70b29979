"""A class, numbers or labels of an image: patches, encoder, pooling, norm and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Fraction, NonNegative
from sliceformer_lab.encoder.embed import Stem
from sliceformer_lab.encoder.linear_init import initialise_head
from sliceformer_lab.encoder.pool import Pool, PoolMode
from sliceformer_lab.tasks.base import DataSizes, ModelConfig
from sliceformer_lab.tasks.patches import PatchTask, patch_for
from sliceformer_lab.tasks.target_task import ClassWeights, TargetTask

if TYPE_CHECKING:
    from timm.data.mixup import Mixup

AUTO_PATCHES_PER_SIDE = 8  # patches per side that patch_size=null aims at


class ImageClassification(PatchTask, TargetTask):
    """A vision transformer of any attention. Batches of images (B, c, H, W) -> logits (B, classes).

    Where the data have several numbers or labels an image in place of classes, outputs are these (B, T).
    `patch_size` null means `patch_for` the image. Raises ValueError if the patch does not divide the
    image, or for pretrained weights with `stem` conv.
    """

    def __init__(
        self,
        model: ModelConfig,
        data: DataSizes,
        *,
        patch_size: Count | None,
        stem: Stem = "patch",
        pool: PoolMode = "mean",
        head_norm: bool = True,
        label_smoothing: Fraction = 0.0,
        mixup: NonNegative = 0.0,
        cutmix: NonNegative = 0.0,
        class_weights: ClassWeights | None = None,
    ) -> None:
        super().__init__(model, data)
        spec = self.data_spec
        if spec.image_size is None or spec.targets not in ("class", "numbers", "labels"):
            raise ValueError(f"{spec.name} has no images with a class, numbers or labels each; choose another task")
        if (mixup or cutmix) and spec.targets != "class":
            raise ValueError(f"mixup and cutmix mix classes, but {spec.name} has {spec.targets}; set both to 0")
        patch_size = patch_size or patch_for(spec.image_size, AUTO_PATCHES_PER_SIDE)
        self.build_encoder(patch_size, stem, cls=pool == "cls")
        self.pool = Pool(pool, self.encoder.options)
        self.pool.check(self.encoder.attentions[-1])
        self.norm = nn.LayerNorm(self.dim) if head_norm else nn.Identity()
        self.head = nn.Linear(self.dim, self.num_outputs)
        initialise_head(self.head, self.encoder.options)
        self.label_smoothing = label_smoothing
        self.weigh_classes(class_weights)
        self.mix: Mixup | None = None
        if mixup or cutmix:
            from timm.data.mixup import Mixup

            self.mix = Mixup(  # type: ignore[no-untyped-call]
                mixup_alpha=mixup, cutmix_alpha=cutmix, label_smoothing=label_smoothing, num_classes=spec.num_classes
            )

    def forward(self, batch: Batch) -> Tensor:
        """Images (B, c, H, W) -> logits (B, classes), or numbers or logits (B, T)."""
        tokens = self.embedding(batch.inputs)  # (B, N, C)
        pooled = self.encoder.pooled(self.pool, tokens)
        return self.in_own_unit(self.head(self.norm(pooled)))

    def counted_parts(self, batch: Batch) -> Tensor:
        """Images with a class: the shares of all classes in a mixed one are one target. Else the known targets."""
        return torch.ones_like(batch.ids, dtype=torch.bool) if self.data_spec.targets == "class" else batch.known

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One batch, with Mixup or CutMix if the recipe has them; they pair samples, so odd batches are not mixed."""
        if self.mix is not None and len(batch) % 2 == 0:
            inputs, target = self.mix(batch.inputs, batch.target)
            batch = Batch(inputs, target, batch.ids)
        return super().training_step(batch, batch_idx)
