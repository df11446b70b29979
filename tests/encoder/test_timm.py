"""timm: its weights in our encoder, and our attentions in its models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer
from torch import Tensor, nn
from torch.testing import assert_close

import sliceformer_lab
from sliceformer_lab.config.compose import load_option, option_names
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.encoder.embed import ImageEmbedding
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.pool import Pool
from sliceformer_lab.encoder.pretrained import copy_vit, initialise_images, read_weights

NAME = "vit_tiny_patch16_224"
SIZES: dict[str, Any] = {"dim": 48, "depth": 2, "num_heads": 3, "mlp_dim": 96}


def timm_vit(size: int = 64, depth: int = 2, num_heads: int = 3, **options: Any) -> Any:
    """A small timm ViT with every parameter random, so that no bias or scale passes unseen."""
    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=size,
        patch_size=16,
        embed_dim=48,
        depth=depth,
        num_heads=num_heads,
        mlp_ratio=2,
        num_classes=7,
        **options,
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return model.eval()


class Ours(nn.Module):
    """Embedding, encoder, pooling and head norm, as a task puts them together."""

    def __init__(
        self, pool: Any = "cls", attention: str = "mha", size: int = 64, block: str = "vit_timm", **encoder: Any
    ) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = ImageEmbedding((size, size), 3, 16, 48, cls=pool == "cls")
        self.encoder: Any = build_encoder(
            load_option("encoder", "tiny") | SIZES | encoder,
            load_option("block", block) | {"norm_eps": 1e-6},
            load_option("attention", attention),
            self.embedding.num_tokens,
            grid=self.embedding.grid,
        )
        self.pool = Pool(pool, self.encoder.options)
        self.norm = nn.Identity() if self.encoder.norm else nn.LayerNorm(48, 1e-6)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.norm(self.pool(self.encoder(self.embedding(images))))
        return pooled

    def parts(self) -> tuple[ImageEmbedding, Any, nn.Module]:
        return self.embedding, self.encoder, self.norm


def images(size: int = 64) -> Tensor:
    return torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    file = tmp_path / "vit.pth"
    torch.save(timm_vit().state_dict(), file)
    return str(file)


@pytest.mark.parametrize(("block", "pool"), [("vit_timm", "cls"), ("vit", "cls"), ("vit", "mean")])
def test_timm_weights_give_timm_logits(block: str, pool: str) -> None:
    theirs = timm_vit() if pool == "cls" else timm_vit(global_pool="avg", class_token=False)
    ours = Ours(pool, block=block)
    copy_vit(theirs.state_dict(), *ours.parts(), with_attention=True)
    assert_close(theirs.head(ours(images())), theirs(images()), atol=1e-5, rtol=1e-5)


def test_init_keeps_everything_but_the_attention(checkpoint: str) -> None:
    theirs = timm_vit().state_dict()
    ours, fresh = (Ours(attention="csp", init=f"timm:{NAME}", init_file=checkpoint) for _ in range(2))
    initialise_images(*ours.parts())
    for name, parameter in ours.named_parameters():
        if ".attention." in name:
            assert_close(parameter, fresh.get_parameter(name))
        else:
            their_name = name.removeprefix("encoder.").replace("embedding.patches", "patch_embed")
            their_name = their_name.replace("embedding.cls", "cls_token").replace("position.table", "pos_embed")
            assert_close(parameter, nn.Parameter(theirs[their_name]))


def test_positions_are_resampled_to_another_grid_and_drop_the_unused_cls(checkpoint: str) -> None:
    for pool in ("cls", "mean"):
        ours = Ours(pool, size=96, init=f"timm:{NAME}", init_file=checkpoint)
        initialise_images(*ours.parts())
        theirs = timm_vit().pos_embed
        grid = theirs[:, 1:].unflatten(1, (4, 4)).permute(0, 3, 1, 2)
        larger = nn.functional.interpolate(grid, (6, 6), mode="bicubic", antialias=True).flatten(2).transpose(1, 2)
        expected = torch.cat([theirs[:, :1], larger], dim=1) if pool == "cls" else larger
        assert_close(ours.encoder.position.table, nn.Parameter(expected))


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ({}, {"mlp_dim": 128}, r"mlp.fc1.weight is \(96, 48\) in the pretrained model and \(128, 48\) here"),
        ({}, {"depth": 3}, "has no encoder.blocks.2.norm1.weight"),
        ({"depth": 3}, {}, "no parameter for encoder.blocks.2"),
        ({"init_values": 0.1}, {}, "no parameter for encoder.blocks.0.ls1.gamma"),
        ({"class_token": False, "global_pool": "avg"}, {}, "has no embedding.cls"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_leave_the_model_alone(
    theirs: dict[str, Any], ours: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "vit.pth")
    torch.save(timm_vit(**theirs).state_dict(), file)
    model, fresh = (Ours(init=f"timm:{NAME}", init_file=file, **ours) for _ in range(2))
    with pytest.raises(ConfigError, match=f"encoder.init=timm:{NAME}: .*{message}") as error:
        initialise_images(*model.parts())
    assert "\n" not in str(error.value)
    assert_close(model.state_dict(), fresh.state_dict())


def options(init: str, init_file: str | None = None) -> EncoderOptions:
    return EncoderOptions(**SIZES, position="learned", init=init, init_file=init_file)


def test_without_network_the_error_names_init_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise OSError("name resolution failed\nmany more lines")

    monkeypatch.setattr(timm, "create_model", no_network)
    with pytest.raises(ConfigError, match=r"encoder.init_file=<file>") as error:
        read_weights(options(f"timm:{NAME}"))
    assert "\n" not in str(error.value)


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('the pickle ran')",))


def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    hostile, text = tmp_path / "hostile.pth", tmp_path / "text.safetensors"
    torch.save(Hostile(), hostile)
    text.write_text("no weights")
    for file, message in [(tmp_path / "none.pth", "no such file"), (hostile, "plain weights"), (text, "plain weights")]:
        with pytest.raises(ConfigError, match=message) as error:
            read_weights(options(f"timm:{NAME}", str(file)))
        assert "\n" not in str(error.value)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="timm has no model"):
        read_weights(options("timm:vit_enormous"))


def test_swapping_mha_in_leaves_the_logits_unchanged() -> None:
    model, x = timm_vit(), images()
    before = model(x)
    swapped = sliceformer_lab.swap(model, "mha")
    assert swapped is model
    assert_close(swapped(x), before, atol=1e-5, rtol=1e-5)


def test_only_the_chosen_layers_are_swapped_and_keep_value_and_output() -> None:
    model, original = timm_vit(depth=3), timm_vit(depth=3)
    sliceformer_lab.swap(model, "csp", layers=[0, 2], overrides={"group_size": 4})
    assert_close(model.blocks[1].attn.state_dict(), original.blocks[1].attn.state_dict())
    for index in (0, 2):
        ours, theirs = model.blocks[index].attn.attention, original.blocks[index].attn
        assert_close(ours.value.weight, nn.Parameter(theirs.qkv.weight[96:]))
        assert_close(ours.value.bias, nn.Parameter(theirs.qkv.bias[96:]))
        assert_close(ours.out.state_dict(), theirs.proj.state_dict())
        assert ours.group_size == 4 and not ours.training
        assert (ours.spec.index, ours.spec.depth, ours.spec.max_len, ours.spec.grid) == (index, 3, 17, (4, 4))
    assert model(images()).isfinite().all()


@pytest.mark.parametrize("name", option_names("attention"))
def test_every_attention_can_be_swapped_in_and_trained(name: str) -> None:
    model = timm_vit(depth=1, num_heads=2).train()
    sliceformer_lab.swap(model, name)
    logits = model(images())
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(("name", "lost"), [("csp_wide", "out.weight, value.bias, value.weight"), ("csp", "")])
def test_weights_of_another_shape_are_named_when_a_swap_renews_them(
    name: str, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    sliceformer_lab.swap(timm_vit(), name, layers=[1])
    expected = [f"WARNING: layer 1: {lost} of csp start from new values"] if lost else []
    assert [record.getMessage().partition(", because")[0] for record in caplog.records] == expected


def test_a_swapped_model_keeps_its_dropout_and_dtype() -> None:
    model = timm_vit(proj_drop_rate=0.5, attn_drop_rate=0.25).to(torch.bfloat16)
    sliceformer_lab.swap(model, "mha")
    swapped: Any = model.blocks[0].attn
    assert (swapped.dropout.p, swapped.attention.spec.attention_dropout) == (0.5, 0.25)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: nn.Linear(2, 2), "Linear cannot be swapped: it has no attention that swap knows"),
        (lambda: nn.DataParallel(timm_vit()), "DataParallel cannot be swapped: .*, before DataParallel or torch"),
        (lambda: timm_vit(qk_norm=True), "layer 0: the swap would lose k_norm, q_norm"),
        (lambda: sliceformer_lab.swap(timm_vit(), "csp"), "layer 0 has no timm attention"),
        (lambda: timm_vit(block_fn=ParallelScalingBlock), "layer 0 has .* it has ParallelScalingBlock"),
    ],
)
def test_an_impossible_swap_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sliceformer_lab.swap(model(), "mha")
