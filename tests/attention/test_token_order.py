"""The tokens of an image in another order keep their content and, with positions that follow the image, their place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import task_modules
from support.plans import build_data, build_task
from support.run_folders import write_runs
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.compose import compose_job, load_option, preset_job
from sliceformer_lab.encoder.embed import ImageEmbedding
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.encoder.pretrained import _resample_positions
from sliceformer_lab.order import TokenOrder, token_order
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.groups import tables

ORDERS: tuple[TokenOrder, ...] = ("hilbert", "random_fixed")
GRID = (4, 6)
PATCHES = GRID[0] * GRID[1]


def ordered(order: TokenOrder, grid: tuple[int, int] = GRID, first: int | None = None) -> Tensor:
    found = token_order(order, grid, first)
    assert found is not None
    return found


@pytest.mark.parametrize("grid", [(1, 1), (1, 5), (4, 4), (5, 7), (14, 14), (32, 32)])
@pytest.mark.parametrize("order", ORDERS)
def test_every_cell_is_a_token_once(order: TokenOrder, grid: tuple[int, int]) -> None:
    assert ordered(order, grid).sort().values.tolist() == list(range(grid[0] * grid[1]))


@pytest.mark.parametrize("size", [2, 4, 8, 32])
def test_hilbert_steps_to_a_neighbour_each_time(size: int) -> None:
    cells = ordered("hilbert", (size, size))
    steps = torch.stack([cells // size, cells % size], dim=1).diff(dim=0).abs().sum(dim=1)
    assert steps.tolist() == [1] * (size * size - 1)


def test_hilbert_on_an_odd_grid_is_the_curve_of_the_enclosing_square_without_the_cells_outside() -> None:
    whole = ordered("hilbert", (8, 8)).tolist()
    inside = [(cell // 8) * 6 + cell % 8 for cell in whole if cell // 8 < 5 and cell % 8 < 6]
    assert ordered("hilbert", (5, 6)).tolist() == inside


def test_random_order_is_the_same_in_every_run() -> None:
    torch.manual_seed(1)
    first = ordered("random_fixed")
    torch.manual_seed(2)
    assert torch.equal(first, ordered("random_fixed"))
    assert (first == torch.arange(PATCHES)).sum() < PATCHES / 4


@pytest.mark.parametrize("order", ORDERS)
def test_a_part_of_the_grid_is_the_same_part_in_any_order(order: TokenOrder) -> None:
    part = ordered(order, first=10)
    assert part.sort().values.tolist() == list(range(10))
    assert part.tolist() == [cell for cell in ordered(order).tolist() if cell < 10]
    assert token_order("raster", GRID, first=10) is None


def encoded(attention: str, order: TokenOrder, position: str, images: Tensor, depth: int = 2) -> tuple[Tensor, Tensor]:
    """Embedded and encoded tokens (B, N, C), CLS first, of the same weights under any order."""
    torch.manual_seed(0)
    embedding = ImageEmbedding((8, 12), 1, 2, 16, cls=True, order=order)
    options = {"dim": 16, "depth": depth, "num_heads": 2, "mlp_dim": 8, "position": position}
    encoder = build_encoder(
        {"_target_": "sliceformer_lab.encoder.encoder_options.EncoderOptions", **options},
        load_option("block", "transformer"),
        load_option("attention", attention),
        embedding.num_tokens,
        num_prefix=1,
        grid=embedding.grid,
        order=embedding.order,
    ).eval()
    with torch.no_grad():
        tokens = embedding(images)
        return tokens, encoder(tokens)


def in_order(x: Tensor, order: Tensor) -> Tensor:
    """Tokens (B, 1 + N, C) with those behind CLS in another order."""
    return torch.cat([x[:, :1], x[:, 1:][:, order]], dim=1)


CASES = [("mha", position, True) for position in ("sincos2d", "rope", "none")]
CASES += [("mha", "learned", False), ("mha", "sincos", False)]  # which follow the order of the tokens
CASES += [("depthwise_conv", "sincos2d", True), ("identity", "sincos2d", True), ("csp", "sincos2d", False)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("attention", "position", "follows"), CASES)
def test_a_model_that_looks_at_places_only_gives_each_patch_the_same(
    attention: str, position: str, follows: bool, order: TokenOrder
) -> None:
    images = torch.randn(2, 1, 8, 12, generator=torch.Generator().manual_seed(0))
    (raster_in, raster_out), (tokens, out) = (encoded(attention, o, position, images) for o in ("raster", order))
    assert torch.equal(tokens, in_order(raster_in, ordered(order))), "the content is that of the patches"
    assert torch.allclose(out, in_order(raster_out, ordered(order)), atol=1e-5) == follows


def test_pretrained_positions_stay_with_their_patches() -> None:
    table = torch.arange(1 + 16.0)[None, :, None].expand(1, 17, 8)
    for cls in (True, False):
        embedding = ImageEmbedding((8, 8), 1, 2, 8, cls=cls, order="hilbert")
        found = _resample_positions(table, True, embedding)[0, :, 0].tolist()
        assert found == [0.0] * cls + (1.0 + ordered("hilbert", (4, 4))).tolist()


def test_the_option_reaches_the_model_and_mean_pooling_over_identity_does_not_see_it() -> None:
    config = compose_job(["encoder=tiny", "encoder.position=sincos2d", "attention=identity"])
    batch = Batch(torch.randn(3, 1, 8, 8), torch.zeros(3).long(), torch.arange(3))
    outputs = {}
    for name in ("raster", "hilbert"):
        data = {**config["data"], "token_order": name}
        for attention in ("identity", "csp"):
            torch.manual_seed(0)
            node = load_option("attention", attention)
            task = build_task({**config, "attention": node}, build_data({**config, "data": data}).spec).eval()
            outputs[attention, name] = task(batch).detach()
    assert torch.allclose(outputs["identity", "raster"], outputs["identity", "hilbert"], atol=1e-6)
    assert not torch.allclose(outputs["csp", "raster"], outputs["csp", "hilbert"], atol=1e-3)


def test_a_model_in_another_order_builds_without_memory() -> None:
    config = compose_job(["encoder=tiny", "attention=mha", "data.token_order=hilbert"])
    for position in ("learned", "sincos2d", "rope"):
        encoder = {**config["encoder"], "position": position}
        with torch.device("meta"):
            task = build_task({**config, "encoder": encoder}, build_data(config).spec).to("meta").eval()
            assert task(task.example()).shape == (1, 10), position


@pytest.mark.parametrize(("task", "order"), [("lra_image", "random_fixed"), ("lra_pathfinder", "hilbert")])
def test_pixels_of_a_sequence_are_in_the_order(task: str, order: TokenOrder, tmp_path: Path) -> None:
    batches = {}
    for name in ("raster", order):
        data = task_modules.ready(task, tmp_path, token_order=name)
        batches[name] = data.splits["test"].batch([0, 2])
    places = ordered(order, (32, 32), first=batches["raster"].inputs.shape[1])
    assert torch.equal(batches[order].inputs, batches["raster"].inputs[:, places])
    assert torch.equal(batches[order].target, batches["raster"].target)


@pytest.mark.parametrize("task", ["digits", "lra_image"])
def test_a_run_s_spec_does_not_name_the_order_so_that_reports_keep_one_table(task: str) -> None:
    config = preset_job(f"task={task}")
    specs = [build_data(config | {"data": {**config["data"], "token_order": o}}).spec for o in ("raster", *ORDERS)]
    assert len({spec.name for spec in specs}) == 1


def test_a_run_that_failed_in_an_order_of_its_own_is_in_the_table_of_the_others(tmp_path: Path) -> None:
    for order, accuracies in (("raster", (0.9, 0.8)), ("hilbert", (None,))):
        write_runs(tmp_path / order, "csp", *accuracies, options={"data.token_order": order})
    (table,) = tables(collect(tmp_path), (), None)
    assert [row.label for row in table.rows] == ["csp", "csp data.token_order=hilbert"]
