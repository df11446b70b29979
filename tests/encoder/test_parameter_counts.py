"""The published models, built from their recipes as in a run: their parameters, to the integer."""

from __future__ import annotations

import pytest
import timm
import torch
from support.plans import build_data, build_task

from sliceformer_lab.config.compose import compose_job

# Published image models hold a CLS token and its position also where no pooling reads them; ours do not.
UNUSED_CLS = {"vit_paper": 2 * 512, "vit_s": 2 * 384}
VIT_S = 22_050_664
# Of one CLS token that ours reads where the published code reads the first byte.
CLS = 128
# Our tables have 3 more rows for atoms and 2 for bonds; the last gated convolution has no norm of edges.
GNN = "samsa/table3_peptides_func_gps attention=identity"


def mega(published: int, dim: int, vocabulary: int = 0, unused: int = 0) -> int:
    """Ours has a table of tokens, and no relative biases beyond the longest sequence."""
    return published + vocabulary * dim - unused


COUNTS = {
    "sliceformer/table4_dogs_vs_cats attention=mha": 1_899_138,
    "sliceformer/table4_dogs_vs_cats attention=sliceformer": 1_112_706,
    "sliceformer/table4_mnist attention=sliceformer": 6_423_050,
    "sliceformer/table4_mnist attention=mha": 9_568_778,
    "sliceformer/table4_tiny_imagenet attention=mha": 21_742_664,
    "sliceformer/table4_tiny_imagenet attention=sliceformer": 18_194_504,
    "csp/table3_cifar10 attention=csp": 6_377_994 - UNUSED_CLS["vit_paper"],
    "csp/table3_cifar10 attention=csp_wide": 9_523_722 - UNUSED_CLS["vit_paper"],
    "csp/table3_imagenet1k attention=csp": 18_502_504 - UNUSED_CLS["vit_s"],
    "csp/table3_imagenet1k attention=mha": VIT_S - UNUSED_CLS["vit_s"],
    "sliceformer/table5_imdb attention=mha": 8_835_074,
    "sliceformer/table5_imdb attention=sliceformer": 8_045_570,
    "sliceformer/table6_pcqm4m attention=mha": 47_085_377,
    "sliceformer/table6_pcqm4m attention=csp": 32_911_169,
    # closed-form sums over the published shapes (operators spec, section 2)
    "sliceformer/table2_lra_listops attention=sliceformer": 6_851_594,
    "sliceformer/table2_lra_listops attention=mha": 8_948_746,
    "sliceformer/table2_lra_text attention=mha": 3_486_722,
    "sliceformer/table2_lra_text attention=sliceformer": 2_962_434,
    "sliceformer/table2_lra_retrieval attention=sliceformer": 956_546 + CLS,
    "sliceformer/table2_lra_retrieval attention=mha": 1_087_618 + CLS,
    "sliceformer/table2_lra_image attention=sliceformer": 343_370,
    "sliceformer/table2_lra_image attention=mha": 248_458,
    "sliceformer/table2_lra_pathfinder attention=sliceformer": 2_160_322,
    "sliceformer/table2_lra_pathfinder attention=mha": 26_530,
    "csp/table4b_lra_listops attention=mega": mega(600_658, 80, vocabulary=17, unused=2 * 2 * 6),
    "csp/table4b_lra_listops attention=csp_complete": mega(544_000, 80, vocabulary=17),
    "csp/table4b_lra_text attention=csp_complete": mega(891_144, 128, vocabulary=258),
    "csp/table4b_lra_text attention=mega": mega(957_204, 128, vocabulary=258, unused=2 * 1 * 4),
    "csp/table4b_lra_retrieval attention=mega": mega(1_451_806, 128, vocabulary=257, unused=2 * 2 * 6),
    "csp/table4b_lra_retrieval attention=csp_complete": mega(1_352_716, 128, vocabulary=257),
    "csp/table4b_lra_image attention=csp_shift_only": mega(2_696_000, 160),
    "csp/table4b_lra_image attention=mega": mega(2_839_096, 160),
    "csp/table4b_lra_pathfinder attention=mega": mega(1_386_874, 128),
    "csp/table4b_lra_pathfinder attention=csp": mega(1_323_520, 128),
    "csp/table4b_lra_pathx attention=csp": mega(242_048, 64),
    "csp/table4b_lra_pathx attention=mega": mega(381_948, 64),
    f"{GNN} block=gcn block.stage=stack encoder.dim=300": 507_910 + 3 * 300,
    f"{GNN} block=gine block.norm=none encoder.dim=208": 475_498 + (3 + 2) * 208,
    f"{GNN} block=gatedgcn": 509_368 + (3 + 2 - 2) * 138,
}


OWN_SIZES = ("sliceformer/table2_lra_image", "sliceformer/table2_lra_pathfinder", GNN)  # for each row


def waits(words: str) -> bool:
    """Whether a row waits for test-all: an earlier one has its recipe with another attention of the same sizes."""
    first = next(row for row in COUNTS if row.split()[0] == words.split()[0])
    return first != words and not words.startswith(OWN_SIZES)


@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=pytest.mark.slow) if waits(words) else words for words in COUNTS]
)
def test_parameters_are_the_published_ones(words: str) -> None:
    config = compose_job(f"recipe={words}".split())
    config["data"]["root"] = "unused"
    with torch.device("meta"):
        model = build_task(config, build_data(config).spec)
    assert sum(parameter.numel() for parameter in model.parameters()) == COUNTS[words]


def test_vit_s_has_the_parameters_of_timm() -> None:
    theirs = timm.create_model("vit_small_patch16_224")  # not on the meta device, for which timm 1.0.20 is too old
    assert sum(p.numel() for p in theirs.parameters()) == VIT_S
