"""The base class of tasks on images: patches, the shared encoder over them, and what can be hidden of them."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional

from sliceformer_lab.batch import Batch
from sliceformer_lab.encoder.embed import ImageEmbedding, Stem
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.tasks.masked import Maskable, Units


class PatchTask(Maskable):
    """A task whose tokens are the patches of images (B, c, H, W). A subclass adds `norm` and a head."""

    embedding: ImageEmbedding
    norm: nn.Module

    def build_encoder(self, patch_size: int, stem: Stem, *, cls: bool) -> None:
        """Adds embedding and encoder. Raises ValueError if they do not fit the images."""
        spec, nodes = self.data_spec, self.nodes
        if stem == "conv" and nodes.encoder.options["init"] is not None:
            raise ValueError("stem=conv: the pretrained weights of encoder.init are of one linear map; set stem=patch")
        self.patch_size = patch_size
        self.embedding = ImageEmbedding(
            spec.image_size or (1, 1),
            spec.channels,
            patch_size,
            self.dim,
            cls=cls,
            cls_std=float(nodes.encoder.option("position_std")),
            order=spec.token_order,
            stem=stem,
        )
        self.encoder = build_encoder(
            nodes.encoder,
            nodes.block,
            nodes.attention,
            self.embedding.num_tokens,
            num_prefix=int(cls),
            grid=self.embedding.grid,
            order=self.embedding.order,
        )

    def initialise(self) -> None:
        if self.encoder.options.init is not None:
            from sliceformer_lab.encoder.pretrained import initialise_images

            initialise_images(self.embedding, self.encoder, self.norm)

    @property
    def masked_units(self) -> Units:
        """Patches, whose pixels are to be found."""
        rows, columns = self.embedding.grid
        numbers = self.data_spec.channels * self.patch_size**2
        return Units(name="patches", rate=0.5, most=rows * columns, numbers=numbers)

    def units(self, batch: Batch) -> Tensor:
        """The pixels of the patches, in the order of the tokens: (B, N, c * patch_size^2)."""
        patches = functional.unfold(batch.inputs, self.patch_size, stride=self.patch_size).mT
        return patches if self.embedding.order is None else patches[:, self.embedding.order]

    def with_units(self, batch: Batch, units: Tensor) -> Batch:
        if self.embedding.order is not None:
            units = units[:, self.embedding.order.argsort()]
        size = batch.inputs.shape[2:]
        return replace(batch, inputs=functional.fold(units.mT, size, self.patch_size, stride=self.patch_size))

    def encode_units(self, batch: Batch, hidden: Hidden) -> Tensor:
        """The patches after the encoder (B, N, C)."""
        return self.encoder(self.embedding(batch.inputs, hidden))[:, self.num_tokens() - hidden.mask.shape[1] :]


def patch_for(image_size: tuple[int, int], patches: int) -> int:
    """The patch that tiles an image of (height, width) pixels and comes closest to `patches` on the shorter side."""
    tiling = [size for size in range(1, min(image_size) + 1) if not any(side % size for side in image_size)]
    return min(tiling, key=lambda size: abs(min(image_size) / size - patches))
