"""Every published setting has a command that composes, builds, claims its printed cell and has its parameters."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from support.endings import train_in_turn
from support.plans import build_data, build_task
from support.studies import rows_of_study

from sliceformer_lab.__main__ import main
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import CONF_DIR, compose_job, option_names, written_option
from sliceformer_lab.encoder.block import Block
from sliceformer_lab.runs import papers as published
from sliceformer_lab.runs.papers import PublishedCell, published_results, recipe_rows, repeated_cell
from sliceformer_lab.tasks.image import ImageClassification

# cells whose printed count no configuration of the printed architecture has (operators spec, section 2)
UNREACHABLE = {
    "sliceformer/table4_mnist": "9.60 M and 6.50 M; the official script's 28 pixels give 9.57 M and 6.42 M",
    "sliceformer/table4_tiny_imagenet": "a 1000-way head",
}
PAPERS = tuple({f"{cell.paper}/" for cell in published_results()})  # settings elsewhere are our own
RECIPES = option_names("recipe")
COMMANDS = {f"recipe={recipe} {words}": cell for recipe in RECIPES for words, cell in recipe_rows(recipe).items()}
OF_TABLES = {(cell.paper, cell.table): command for command, cell in reversed(COMMANDS.items())}
FIRST_ROWS = list(OF_TABLES.values())  # one of each table
OTHER_ROWS = [pytest.param(command, marks=pytest.mark.slow) for command in COMMANDS if command not in FIRST_ROWS]
UNPRINTED = [row for row in rows_of_study("csp_table4") if row not in COMMANDS]  # CSP Table 7, MEGA with CSP
NEEDS_FILES = ("sequences/minilm",)  # of the user: tests/encoder/test_bert.py trains it
FIRST_OF_PEPTIDES = {command.split()[0]: command for command in COMMANDS}.values()  # one of each recipe
OWN = [f"recipe={recipe}" for recipe in RECIPES if not recipe.startswith((*PAPERS, *NEEDS_FILES))]
OWN_PEPTIDES = [  # attentions that GraphGPS's setting does not have
    f"recipe=samsa/table3_{task}_gps attention={a}"
    for task in ("peptides_func", "peptides_struct")
    for a in ("csp", "samsa")
]
ARENA = ("listops", "text", "retrieval", "image", "pathfinder")
REPEATABLE = Path(__file__).with_name("repeatable_cells.csv")  # that version 56d17eb had a command for
ROUNDING = 0.006  # the papers print two decimals of a million


@pytest.mark.parametrize(
    ("recipe", "rate"),
    [("csp/table3_cifar10", 0.1), ("sliceformer/table4_mnist", 0.1), ("sliceformer/table4_dogs_vs_cats", 0.0)],
)
def test_softmax_attention_of_the_papers_vit_drops_weights_as_in_their_scripts(recipe: str, rate: float) -> None:
    config = composed(f"recipe={recipe} attention=mha")
    with torch.device("meta"):
        task = build_task(config, build_data(config).spec)
    assert {layer.spec.attention_dropout for layer in task.modules() if isinstance(layer, MHA)} == {rate}


@cache
def composed(command: str) -> dict[str, Any]:
    config = compose_job(command.split())
    config["data"]["root"] = "unused"
    return config


def parameters_in_millions(config: dict[str, Any]) -> float:
    with torch.device("meta"):
        task = build_task(config, build_data(config).spec)
    # published image models always allocate a CLS token and its position; ours do so only where pooling reads them
    has_unused = isinstance(task, ImageClassification) and config["task"]["pool"] != "cls"
    unused = 2 * config["encoder"]["dim"] if has_unused else 0
    return (sum(p.numel() for p in task.parameters()) + unused) / 1e6


@pytest.mark.parametrize("command", FIRST_ROWS + OTHER_ROWS)
def test_command_claims_exactly_its_cell_and_has_its_parameters(command: str) -> None:
    config, cell = composed(command), COMMANDS[command]
    assert config["names"]["task"] == cell.task
    assert config["names"]["attention"].startswith(SYSTEMS.get(cell.attention, cell.attention))
    check_config(config)
    claimed = repeated_cell(config)
    assert PublishedCell(**claimed) == cell
    recipe = config["names"]["recipe"]
    assert recipe.startswith(f"{cell.paper}/{cell.table}_{cell.task}")
    size = published_results().get(replace(cell, metric="params_millions"))
    ours = parameters_in_millions(config)
    if size is not None and size.value is not None and recipe not in UNREACHABLE:
        assert ours == pytest.approx(size.value, abs=ROUNDING)


def test_every_cell_that_had_a_command_still_has_one() -> None:
    with REPEATABLE.open(encoding="utf-8") as file:
        cells = [PublishedCell(**row) for row in csv.DictReader(file)]
    assert len(cells) == 299 and set(cells) <= set(published_results())
    found = {replace(cell, metric="") for cell in COMMANDS.values()}
    lost = []
    for cell in cells:
        quoted = (cell.paper, cell.table) == ("samsa", "table2")  # with figures of Sliceformer's
        papers = {cell.paper, "sliceformer"} if quoted else {cell.paper}
        if not found & {replace(cell, paper=paper, metric="") for paper in papers}:
            lost.append(cell)
    assert lost == []


TASKS = {"dogs_vs_cats", "mnist", "cifar10", "cifar100", "tiny_imagenet", "imagenet1k", "imdb"}
TASKS |= {"lra_listops", "lra_text", "lra_retrieval", "lra_image", "lra_pathfinder", "lra_pathx"}
SYSTEMS = {"pointnet": "identity", "set_transformer": "mha"}  # whole models, and the attention they are built of
SYSTEMS |= {**dict.fromkeys(("gcn", "gine", "gatedgcn", "gatedgcn_rwse"), "identity"), "graphgps_lappe": "mha"}
NOT_REPEATED = {"ccnn", "etsmlp", "s4", "s5", "spade"}  # systems without attention, quoted in CSP Table 4
QUOTED = {"bigbird", "reformer", "performer", "linformer"}  # in SAMSA Table 2 the figures of Sliceformer Table 2


def is_ours_to_repeat(cell: PublishedCell) -> bool:
    quoted = (cell.paper, cell.table) == ("samsa", "table2") and cell.attention in QUOTED
    return cell.attention not in NOT_REPEATED and not quoted and published_results()[cell].printed != "FAIL"


def test_every_printed_accuracy_of_these_tasks_has_a_command() -> None:
    printed = {cell for cell in published_results() if cell.task in TASKS and cell.metric == "test/accuracy"}
    repeated = set(COMMANDS.values())
    assert {cell for cell in printed if is_ours_to_repeat(cell)} == {cell for cell in repeated if cell.task in TASKS}


@pytest.mark.parametrize("command", [c for c in (*FIRST_OF_PEPTIDES, *OWN, *OWN_PEPTIDES) if "peptides" in c])
def test_settings_for_peptides_keep_to_the_size_of_the_benchmark_or_to_samsa_s_code(command: str) -> None:
    config = composed(command)
    limit = config["task"]["max_parameters"]
    assert (limit is None) is (config["task"]["tokens"] == "random")
    assert limit is None or parameters_in_millions(config) <= limit / 1e6


def test_figures_that_samsa_quotes_are_sliceformer_s() -> None:
    for cell, result in published_results().items():
        if (cell.paper, cell.table) == ("samsa", "table2") and cell.attention in QUOTED:
            assert result.value == published_results()[replace(cell, paper="sliceformer")].value


@pytest.mark.parametrize("command", [*UNPRINTED, *OWN])
def test_settings_that_no_paper_prints_build_and_claim_nothing(command: str) -> None:
    config = composed(command)
    check_config(config)
    assert repeated_cell(config) is None
    assert parameters_in_millions(config) > 0


@pytest.mark.parametrize(
    ("command", "claims"),
    {
        "recipe=csp/table3_cifar10 attention=csp seed=3 selection=best_test data.val_fraction=0": True,
        "recipe=csp/table3_cifar10 attention=csp data.limit_train=100 data.verify=false": True,  # the report says so
        "recipe=csp/table3_cifar10 attention=csp encoder.depth=3": False,
        "recipe=csp/table3_cifar10 attention=csp encoder=tiny": False,
        "recipe=csp/table3_cifar10 attention=csp attention.group_size=4": False,
        "recipe=csp/table3_cifar10 attention=csp optim.lr=1": False,
        "recipe=csp/table3_cifar10 attention=csp data.batch_size=3": False,
        "recipe=csp/table3_cifar10 attention=csp task.pool=cls": False,
        "recipe=csp/table3_cifar10 attention=csp task=cifar100": False,
        "recipe=csp/table3_cifar10 attention=fnet": False,
        "recipe=samsa/table1_lra_text attention=samsa attention.sample_size=100": False,
        "recipe=csp/table3_cifar10 attention=csp scale=small": True,
        "recipe=csp/table3_cifar10 attention=csp scale=small optim.max_steps=7": False,
        "recipe=csp/table3_cifar10 attention=csp callbacks=minimal": True,
        "recipe=csp/table3_cifar10 attention=csp callbacks=ema": False,
        "recipe=csp/table3_cifar10 attention=csp pretrain=masked": False,
        "recipe=csp/table3_cifar10 attention=csp trainer.overfit_batches=2": False,
    }.items(),
)
def test_a_run_claims_a_cell_only_in_the_published_setting(command: str, claims: bool) -> None:
    assert (repeated_cell(compose_job(command.split())) is not None) is claims


def test_a_cell_that_the_command_line_names_is_taken_at_its_word() -> None:
    cell = astuple(next(iter(published_results())))
    named = dict(zip(published.CELL_KEYS, cell, strict=True))
    assert repeated_cell({"published": named, "names": {}}) == named
    assert repeated_cell({"published": None, "names": {}}) is None


def test_the_published_imdb_code_is_one_recipe_and_off_elsewhere() -> None:
    habits = composed("recipe=sliceformer/table5_imdb_published_code attention=mha_times_tokens")
    clean = composed("recipe=sliceformer/table5_imdb attention=mha")
    for config, on in ((habits, True), (clean, False)):
        assert config["attention"]["times_tokens"] is on
        assert config["task"]["double_softmax"] is config["task"]["pool_over_padding"] is on
        assert (config["data"]["partition"] == "published") is config["data"]["pad_to_max_len"] is on
    assert [name for name in RECIPES if written_option("recipe", name).get("task", {}).get("double_softmax")] == [
        "sliceformer/table5_imdb_published_code"
    ]


def test_every_recipe_says_where_its_numbers_come_from() -> None:
    for name in RECIPES:
        text = (CONF_DIR / "recipe" / f"{name}.yaml").read_text(encoding="utf-8")
        assert "Table" in text or "section" in text or "ours, no paper" in text, name


@pytest.mark.parametrize(
    ("words", "expected"),
    {
        "recipe=sliceformer/table2_lra_image attention=sinkhorn": {"dim": 32, "head_dim": None, "dropout": 0.1},
        "recipe=sliceformer/table2_lra_image attention=mha": {"dim": 128, "head_dim": 8, "dropout": 0.3},
        "recipe=sliceformer/table2_lra_image attention=csp_wide": {"dim": 128, "head_dim": 8},  # none of its own
        "recipe=sliceformer/table2_lra_image attention=sliceformer_reference": {"dim": 96, "head_dim": 6},  # family's
        "recipe=sliceformer/table2_lra_image attention=mha encoder.dim=48": {"dim": 48},  # the command line wins
    }.items(),
)
def test_an_attention_takes_its_own_value_its_family_s_or_the_default(words: str, expected: dict[str, Any]) -> None:
    encoder = compose_job(words.split())["encoder"]
    assert {key: encoder[key] for key in expected} == expected


def test_sinkhorn_has_a_head_of_its_own_only_where_its_published_code_has_one() -> None:
    tasks = {task: composed(f"recipe=sliceformer/table2_lra_{task} attention=sinkhorn")["task"] for task in ARENA}
    assert {task: (found["pool"], found["head"]) for task, found in tasks.items()} == {
        **dict.fromkeys(ARENA, ("mean", "linear")),
        "retrieval": ("cls", "mlp"),  # its two-tower model has the head of the other rows
    }


def test_luna_s_mlp_has_the_activation_of_its_published_code() -> None:
    for task in ARENA:
        config = composed(f"recipe=samsa/table2_lra_{task}_luna attention=luna")
        with torch.device("meta"):
            model = build_task(config, build_data(config).spec)
        kinds = {type(layer.mlp.act) for layer in model.modules() if isinstance(layer, Block)}
        assert kinds == {torch.nn.GELU}, task


def test_an_option_without_a_value_for_the_attention_stays_as_its_yaml_says_or_is_left_out() -> None:
    recipe = "recipe=sliceformer/table2_lra_image"
    sizes = {
        a: compose_job([recipe, f"attention={a}"])["attention"].get("block_size") for a in ("local", "sparse", "mha")
    }
    assert sizes == {"local": 64, "sparse": 50, "mha": None}
    assert compose_job([recipe, "attention=local"])["optim"]["lr"] == 5e-4


Lab = Callable[..., list[Mapping[str, Any]]]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The command line in a temporary folder, which trains nothing; returns the configurations of its jobs."""
    monkeypatch.chdir(tmp_path)

    def start(*words: str) -> list[Mapping[str, Any]]:
        asked = train_in_turn(monkeypatch, *[None] * 6)
        assert main([*words, "data.root=unused"]) == 0
        return asked

    return start


def test_a_sweep_over_attentions_gives_each_job_its_own_values_and_cell(lab: Lab, tmp_path: Path) -> None:
    jobs = lab("-m", "recipe=sliceformer/table2_lra_image", "attention=mha,sliceformer,fnet")
    assert [job["encoder"]["depth"] for job in jobs] == [1, 6, 1]
    cells = [job["published"] and (job["published"]["attention"], job["published"]["variant"]) for job in jobs]
    assert cells == [("mha", ""), ("sliceformer", "ascend"), None]
    assert all("block_size" not in job["attention"] for job in jobs)


@pytest.mark.parametrize(
    ("task", "mega", "csp"),
    [
        *((task, 0.1, 0.1) for task in ("listops", "text", "retrieval")),
        *[("image", 0.0, 0.0), ("pathfinder", 0.0, 0.1), ("pathx", 0.0, 0.5)],
    ],
)
def test_mega_drops_embeddings_at_the_rate_of_its_branches(task: str, mega: float, csp: float) -> None:
    for attention, rate in (("mega", mega), ("csp", csp)):
        encoder = composed(f"recipe=csp/table4b_lra_{task} attention={attention}")["encoder"]
        assert (encoder["embed_dropout"], encoder["dropout"]) == (rate, rate)


def test_a_user_s_own_attention_takes_the_defaults_and_keeps_its_own_options(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "mine" / "attention").mkdir(parents=True)
    node = "_target_: sliceformer_lab.attention.local.Local\nblock_size: 7\n"
    (tmp_path / "mine" / "attention" / "my_local.yaml").write_text(node)
    (job,) = lab("--config-dir", str(tmp_path / "mine"), "recipe=sliceformer/table2_lra_image", "attention=my_local")
    assert (job["attention"]["block_size"], job["encoder"]["dim"], job["published"]) == (7, 128, None)


def test_another_encoder_wins_over_a_recipe_unless_the_recipe_would_change_it(
    lab: Lab, refused: Callable[..., str]
) -> None:
    (job,) = lab("recipe=sequences/imdb_quick", "encoder=tiny")
    assert job["encoder"]["dim"] == 64
    sentence = refused("recipe=csp/table4b_lra_image", "encoder=tiny")
    assert "encoder=tiny: recipe=csp/table4b_lra_image sets encoder.dim" in sentence
