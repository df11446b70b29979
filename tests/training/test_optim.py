"""Training recipes: optimizer, weight decay of each parameter, and learning rate at every step."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from support.plans import run
from support.runs import small_config
from torch import nn, optim
from torch.optim.lr_scheduler import CosineAnnealingLR, PolynomialLR

from sliceformer_lab.config.compose import compose_job, load_option, option_names
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.saved.saved_run import load_run

STEPS, EPOCHS = 60, 12  # five steps per epoch


def rates(count: int = STEPS, **options: Any) -> list[float]:
    """The optimizer's learning rate at each of `count` steps, divided by `lr`."""
    recipe = OptimOptions(**({"lr": 0.5, "epochs": EPOCHS, "interval": "step"} | options))
    optimizer = recipe.build_optimizer(nn.Linear(2, 2))
    schedule = recipe.build_schedule(optimizer, count)
    seen = []
    for _ in range(count):
        seen.append(optimizer.param_groups[0]["lr"] / recipe.lr)
        optimizer.step()
        schedule.step()
    return seen


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        ("constant", lambda t: 1.0),
        ("cosine", lambda t: 0.1 + 0.9 * (1 + math.cos(math.pi * t / 50)) / 2),
        ("linear", lambda t: 0.1 + 0.9 * (1 - t / 50)),
        ("inverse_sqrt", lambda t: math.sqrt(10 / (t + 11))),
    ],
)
@pytest.mark.parametrize("lowest", [{"min_lr": 0.05, "min_lr_share": 0.02}, {"min_lr": 0.01, "min_lr_share": 0.1}])
def test_schedule_follows_its_formula_after_a_warmup(schedule: str, formula: Any, lowest: dict[str, float]) -> None:
    seen = rates(schedule=schedule, warmup_steps=10, warmup_lr=0.1, warmup_power=2.0, **lowest)
    assert seen[:10] == pytest.approx([0.2 + 0.8 * ((step + 1) / 10) ** 2 for step in range(10)])
    assert seen[10:] == pytest.approx([formula(t) for t in range(50)])


@pytest.mark.parametrize(
    ("options", "kind", "theirs", "moves"),
    [
        ({"schedule": "cosine", "interval": "epoch"}, CosineAnnealingLR, {"T_max": EPOCHS}, EPOCHS),
        ({"schedule": "linear", "decay_power": 1.7}, PolynomialLR, {"total_iters": STEPS, "power": 1.7}, STEPS),
    ],
)
def test_decay_equals_torch(options: dict[str, Any], kind: Any, theirs: dict[str, Any], moves: int) -> None:
    """Torch's schedule moves once an epoch or once a step."""
    optimizer = optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    schedule, expected = kind(optimizer, **theirs), []
    for _ in range(moves):
        expected += [optimizer.param_groups[0]["lr"]] * (STEPS // moves)
        optimizer.step()
        schedule.step()
    assert rates(**options) == pytest.approx(expected)


@pytest.mark.parametrize(("recipe", "epochs"), [("table5_imdb", 11), ("table4_dogs_vs_cats", 250)])
def test_the_rate_drops_after_as_many_epochs_as_in_sliceformer_s_scripts(recipe: str, epochs: int) -> None:
    options: OptimOptions = build_object(compose_job([f"recipe=sliceformer/{recipe}"])["optim"], where="optim")
    factor = options.rate_factor(100 * (options.epochs or 0))  # 100 steps an epoch
    assert [factor(100 * epochs - 1), factor(100 * epochs)] == pytest.approx([1.0, 0.1])


@pytest.mark.parametrize(("max_steps", "drops"), [(150, [75, 113]), (60, [30, 45])])
def test_milestones_of_a_shortened_run_come_at_the_same_fraction_of_it(max_steps: int, drops: list[int]) -> None:
    options = OptimOptions(schedule="multistep", milestones=(50, 75), epochs=100, max_steps=max_steps)
    factor = options.rate_factor(100 * 390)
    assert [step for step in range(1, max_steps) if factor(step) < factor(step - 1)] == drops


def test_the_warmup_of_a_shortened_run_takes_at_most_a_tenth_of_it() -> None:
    factor = OptimOptions(schedule="constant", warmup_share=0.4, epochs=100, max_steps=200).rate_factor(10_000)
    assert [factor(step) < 1 for step in (18, 19)] == [True, False]


def test_warmup_may_end_within_an_epoch() -> None:
    seen = rates(schedule="linear", interval="epoch", warmup_steps=7)
    assert seen[:7] == pytest.approx([(step + 1) / 7 for step in range(7)])
    assert seen[7:15] == pytest.approx([1.0] * 3 + [1 - 3 / 53] * 5)


def test_linear_decay_stays_at_its_end() -> None:
    seen = rates(schedule="linear", cycle="official", horizon=40, min_lr=0.05)
    assert seen[39] > 0.1 and seen[40:] == pytest.approx([0.1] * 20)


def test_untuned_warmup_multiplies_a_schedule_over_all_steps() -> None:
    seen = rates(schedule="cosine", warmup_steps="untuned", betas=(0.9, 0.9))
    cosine = [0.5 * (1 + math.cos(math.pi * t / STEPS)) for t in range(STEPS)]
    assert seen == pytest.approx([min(1, (t + 1) / 20) * rate for t, rate in enumerate(cosine)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 10}, "epochs=100 and steps=10: set one of them"),
        ({"steps": 10, "val_every": 5}, "leave the other null; with epochs, set val_every=null too"),
        ({"val_every": 5}, "val_every=5 counts optimizer steps"),
        ({"epochs": None, "steps": 5}, "set interval=step"),
        ({"epochs": None, "steps": 5, "interval": "step", "schedule": "multistep"}, "another schedule than multistep"),
        ({"cycle": "official"}, "cycle=official needs a horizon"),
        ({"horizon": 5, "warmup_steps": 5}, "horizon=5 must be greater than warmup_steps=5"),
        ({"warmup_lr": 1.0}, "warmup_lr=1.0, the rate of the first step, exceeds"),
        ({"warmup_share": 0.1, "warmup_steps": 5}, "set warmup_share=null or warmup_steps=0"),
        ({"least_epochs": 5, "most_epochs": 4}, "most_epochs=4 is less than least_epochs=5"),
        ({"schedule": "plateau", "warmup_steps": 10}, "schedule=plateau has no warm-up"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptimOptions(**options)


def test_decoupled_decay_shrinks_weights_by_the_rate_and_adam_s_does_not() -> None:
    """With no gradient but the decay's, AdamW leaves (1 - lr * decay) of a weight: flax's Adam and fairseq's too."""
    for name, expected in (("adamw", 1 - 0.1 * 0.5), ("adam", 1 - 0.1)):
        weight = nn.Linear(1, 1, bias=False)
        nn.init.ones_(weight.weight)
        optimizer = OptimOptions(optimizer=name, lr=0.1, weight_decay=0.5).build_optimizer(weight)
        weight.weight.grad = torch.zeros(1, 1)
        optimizer.step()
        assert weight.weight.item() == pytest.approx(expected, abs=1e-6)


STRIDE = 25


def preset(name: str, *overrides: str) -> tuple[OptimOptions, list[float]]:
    """An option of conf/optim or a recipe with its attention, and its rate at every STRIDE-th of its steps."""
    chosen = ["recipe=" + name.split()[0], f"attention={name.split()[1]}"] if "/" in name else [f"optim={name}"]
    node = compose_job([*chosen, *(f"optim.{word}" for word in overrides)])["optim"]
    recipe: OptimOptions = build_object(node, where="optim")
    factor = recipe.rate_factor(recipe.steps or 0)
    return recipe, [recipe.lr * factor(step) for step in range(0, recipe.steps or 0, STRIDE)]


@pytest.mark.parametrize(
    ("name", "w", "steps"), [("lra_listops", 1000, 5000), ("lra_text", 8000, 20_000), ("lra_retrieval", 8000, 5000)]
)
def test_square_root_recipes_are_long_range_arena_s(name: str, w: int, steps: int) -> None:
    recipe, seen = preset(name)
    theirs = [0.05 * min(1, t / w) / math.sqrt(max(t, w)) for t in range(1, steps + 1, STRIDE)]
    assert seen == pytest.approx(theirs, rel=1e-4)
    assert (recipe.optimizer, recipe.betas, recipe.eps, recipe.weight_decay) == ("adamw", (0.9, 0.98), 1e-9, 0.1)
    assert not recipe.no_decay  # flax decays all weights


@pytest.mark.parametrize(
    ("name", "lr", "w", "cycle", "steps"),
    [
        ("lra_image", 5e-4, 175, 35_000, 35_000),
        ("sliceformer/table2_lra_image sliceformer", 5e-3, 175, 35_000, 46_800),
        ("csp/table4a_lra_image csp_complete", 8e-3, 175, 35_000, 35_156),
        ("lra_pathfinder", 1e-3, 312, 62_400, 62_400),
        ("sliceformer/table2_lra_pathfinder sliceformer", 5e-4, 312, 62_400, 50_000),
        ("csp/table4a_lra_pathfinder csp_complete", 1e-3, 312, 62_400, 125_000),
    ],
)
def test_cosine_recipes_are_long_range_arena_s_if_official_and_end_with_the_run_else(
    name: str, lr: float, w: int, cycle: int, steps: int
) -> None:
    recipe, seen = preset(name, "cycle=official")
    after = range(0, steps, STRIDE)[math.ceil(w / STRIDE) :]
    theirs = [lr * 0.5 * (1 + math.cos(math.pi * ((t - w) / cycle % 1))) for t in after]
    assert recipe.steps == steps and recipe.weight_decay == 0.0
    assert seen[-len(theirs) :] == pytest.approx(theirs)
    fitting = preset(name)[1][-len(theirs) :]
    assert fitting[-1] < 1e-5 * lr and min(fitting) == fitting[-1]


@pytest.mark.parametrize(
    ("name", "lr", "decay", "w", "steps", "accumulate"),
    [
        ("mega", 1e-3, 0.01, 3000, 90_000, 1),
        ("csp/table4b_lra_text mega", 4e-3, 0.01, 10_000, 25_000, 2),
        ("csp/table4b_lra_retrieval mega", 3e-3, 0.04, 10_000, 91_960, 8),
        ("csp/table4b_lra_retrieval csp_complete", 6e-3, 0.04, 10_000, 91_960, 8),
        ("csp/table4b_lra_image mega", 1e-2, 0.02, 9000, 180_000, 1),
        ("csp/table4b_lra_pathfinder mega", 1e-2, 0.01, 50_000, 250_000, 1),
        ("csp/table4b_lra_pathfinder csp", 3e-2, 0.01, 50_000, 250_000, 1),
        ("csp/table4b_lra_pathx mega", 1e-2, 0.01, 25_000, 125_000, 8),
    ],
)
def test_recipes_of_mega_are_its_code_s(
    name: str, lr: float, decay: float, w: int, steps: int, accumulate: int
) -> None:
    recipe, seen = preset(name)
    power = 2 if "pathx" in name else 1
    theirs = [1e-7 + (lr - 1e-7) * (t / w) ** power for t in range(1, w + 1, STRIDE)]
    theirs += [lr * (steps - t) / (steps - w) for t in range(w, steps, STRIDE)]
    assert recipe.steps == steps and seen == pytest.approx(theirs)
    assert (recipe.weight_decay, recipe.accumulate, recipe.clip_norm) == (decay, accumulate, 1.0)
    assert (recipe.betas, recipe.eps) == ((0.9, 0.98), 1e-8)


def test_warmup_of_samsa_takes_two_thousand_steps() -> None:
    recipe: OptimOptions = build_object(load_option("optim", "lra_samsa"), where="optim")
    assert recipe.warmup_steps == "untuned" and recipe.epochs == 50 and recipe.clip_norm == 2.0
    factor = recipe.rate_factor(10**9)  # so long that the cosine has not begun
    assert [factor(step) for step in (0, 999, 1999, 2000)] == pytest.approx([1 / 2000, 0.5, 1, 1])


class Marked(nn.Module):
    """One parameter of each kind that the optimiser may treat apart."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.position = nn.Parameter(torch.zeros(4, 3))
        self.slow = nn.Parameter(torch.zeros(3, 3))
        self.frozen = nn.Parameter(torch.zeros(3, 3), requires_grad=False)
        self.position.no_decay = True
        self.slow.lr_scale = 0.1


def groups(model: nn.Module, **options: Any) -> dict[str, tuple[float, float]]:
    """Decay and rate of every parameter of `model` that the optimiser was given."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = OptimOptions(lr=1.0, weight_decay=0.5, **options).build_optimizer(model)
    return {names[id(p)]: (g["weight_decay"], g["lr"]) for g in optimizer.param_groups for p in g["params"]}


def test_biases_norms_and_hinted_parameters_are_not_decayed_unless_all_are() -> None:
    spared = ("linear.bias", "norm.weight", "norm.bias", "position")
    expected = {"linear.weight": (0.5, 1.0), "slow": (0.5, 0.1)} | dict.fromkeys(spared, (0.0, 1.0))
    assert groups(Marked(), optimizer="adamw") == expected
    assert {decay for decay, _ in groups(Marked(), no_decay=False).values()} == {0.5}


def test_every_trainable_parameter_of_a_vit_is_trained_once_and_its_positions_are_spared() -> None:
    config = small_config("task.pool=cls")
    model = {node: config[node] for node in ("encoder", "block", "attention", "optim")}
    data = DataSpec(name="digits", num_classes=10, image_size=(8, 8), channels=1)
    task = build_object(config["task"], model, data, where="task")
    found = groups(task)
    assert found.keys() == dict(task.named_parameters()).keys()
    assert [name for name, (decay, _) in found.items() if decay == 0 and "bias" not in name and "norm" not in name] == [
        "embedding.cls",
        "encoder.position.table",
    ]


@pytest.mark.parametrize(("name", "kind"), [("adam", optim.Adam), ("adamw", optim.AdamW), ("sgd", optim.SGD)])
def test_optimiser_is_the_named_one_with_its_options(name: Any, kind: type[optim.Optimizer]) -> None:
    optimizer = OptimOptions(optimizer=name, betas=(0.8, 0.9), eps=1e-3).build_optimizer(nn.Linear(1, 1))
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert group["momentum"] == 0.8 if name == "sgd" else (group["betas"], group["eps"]) == ((0.8, 0.9), 1e-3)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "muon", "lion", "nadamw", "radamw", "adoptw", "lamb"])
def test_every_optimiser_lowers_a_loss_and_goes_on_from_its_state(name: Any) -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randn(64, 6), torch.randn(64, 6)

    def built() -> tuple[nn.Module, optim.Optimizer]:
        torch.manual_seed(1)
        model = nn.Sequential(OrderedDict(body=nn.Linear(6, 8), head=nn.Linear(8, 6)))
        return model, OptimOptions(optimizer=name, lr=1e-2, weight_decay=0.01).build_optimizer(model)

    def steps(model: nn.Module, optimizer: optim.Optimizer, count: int) -> float:
        for _ in range(count):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        return loss.item()

    first, again = built(), built()
    before = steps(*first, 1)
    assert steps(*first, 20) < before
    steps(*again, 10)
    resumed = built()
    resumed[0].load_state_dict(again[0].state_dict())
    resumed[1].load_state_dict(again[1].state_dict())
    steps(*resumed, 11)
    torch.testing.assert_close(list(resumed[0].parameters()), list(first[0].parameters()), atol=1e-6, rtol=1e-5)


def test_muon_leaves_tables_the_head_and_vectors_to_adamw() -> None:
    model = nn.Sequential(OrderedDict(table=nn.Embedding(5, 4), body=nn.Linear(4, 4), head=nn.Linear(4, 2)))
    optimizer = OptimOptions(optimizer="muon", weight_decay=0.1).build_optimizer(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    beside = {names[id(p)] for group in optimizer.param_groups if group.get("use_fallback") for p in group["params"]}
    assert beside == {"table.weight", "head.weight", "head.bias"}  # and timm does so with vectors


@pytest.mark.parametrize("name", option_names("optim"))
def test_every_recipe_can_be_built(name: str) -> None:
    recipe: OptimOptions = build_object(load_option("optim", name), where="optim")
    total = recipe.steps or recipe.target_steps or 1000 * (recipe.epochs or 0)
    rates = [recipe.rate_factor(total)(step) for step in range(0, total, max(1, total // 200))]
    assert all(0 <= rate <= 1 for rate in rates) and max(rates) > 0.6  # Retrieval's warm-up outlasts its run


def test_a_step_is_as_long_as_the_clipped_norm_in_bfloat16_too(tmp_path: Path) -> None:
    sgd = ("optim.optimizer=sgd", "optim.betas=[0,0.9]", "optim.lr=1")
    plain = ("trainer.precision=bf16-mixed", *sgd, "selection=last")
    weights = []
    for norm in (1e-6, 1e-3):
        one_step = ("optim.epochs=1", "data.batch_size=128", "optim.warmup_steps=0", f"optim.clip_norm={norm}")
        run(small_config(*plain, *one_step), tmp_path / str(norm))
        found = load_run(tmp_path / str(norm)).model.state_dict().values()
        weights.append(torch.cat([weight.flatten() for weight in found if weight.is_floating_point()]))
    assert float((weights[0] - weights[1]).norm()) == pytest.approx(1e-3 - 1e-6, rel=0.01)
