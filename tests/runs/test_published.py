"""A published number is found by its cell, and is compared with ours only under an equal protocol."""

from __future__ import annotations

from typing import Any

import pytest
from support.run_folders import summary_of

from sliceformer_lab.runs.papers import compare_published, find_obstacles, find_published, protocols, published_results

CELL = {"paper": "csp", "table": "table3", "task": "cifar10", "attention": "csp", "metric": "test/accuracy"}
PROTOCOL = {"data": "CIFAR-10", "official": True, "num_train": 50_000, "selection": "best_test", "epochs": 100}
SUMMARY = {
    "task": "cifar10",
    "published": CELL,
    "metrics": {"test/accuracy": 0.8462, "test/loss": 0.5},
    "parameters": 6_377_994,
    "protocol": PROTOCOL,
}


def compared(summary: dict[str, Any]) -> str | None:
    return compare_published(summary_of(summary))


def test_a_cell_is_found_and_its_number_is_in_our_units() -> None:
    result = find_published(CELL)
    assert result.printed == "84.81" and result.value == pytest.approx(0.8481)
    assert find_published({**CELL, "variant": None}) is find_published({**CELL, "variant": ""}) is result
    peptides = {**CELL, "paper": "samsa", "table": "table3", "task": "peptides_func", "attention": "samsa"}
    precision = find_published({**peptides, "variant": "hard", "metric": "test/average_precision_samsa"})
    assert precision.value == pytest.approx(0.7221)
    assert find_published({**CELL, "metric": "params_millions"}).value == pytest.approx(6.38)
    failed = find_published(CELL | {"paper": "sliceformer", "table": "table2", "task": "lra_pathx", "attention": "mha"})
    assert (failed.printed, failed.value) == ("FAIL", None)


def test_a_wrong_cell_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no paper prints .*table9.*nearest cell is \[csp, table3, cifar10, csp"):
        find_published({**CELL, "table": "table9"})
    with pytest.raises(ValueError, match="no such key epochs"):
        find_published({**CELL, "epochs": 100})


def test_no_two_rows_share_a_cell_and_every_value_reads() -> None:
    results = published_results()
    assert len(results) == 569
    assert {r.printed for r in results.values() if r.value is None} == {"FAIL", "OOM"}
    for result in results.values():
        if "accuracy" in result.cell.metric and result.value is not None:
            assert 0.1 < result.value < 1


def test_known_protocols_belong_to_published_tasks() -> None:
    cells = {f"{cell.paper}/{cell.table}/{cell.task}/{cell.attention}/" for cell in published_results()}
    assert [key for key in protocols() if not any(f"/{key}/" in f"/{cell}" for cell in cells)] == []
    assert all((recipe.epochs is None) != (recipe.steps is None) for recipe in protocols().values())


@pytest.mark.parametrize(
    ("task", "num_train", "length"), [("lra_listops", 96_000, 2000), ("lra_retrieval", 147_086, 4000)]
)
def test_sinkformer_s_published_sequences_are_shorter_than_those_of_the_other_rows(
    task: str, num_train: int, length: int
) -> None:
    row = {"paper": "sliceformer", "table": "table2", "task": task, "metric": "test/accuracy"}
    selection = protocols()[f"sliceformer/table2/{task}"].selection
    protocol = {"official": True, "num_train": num_train, "selection": selection, "steps": 5000}
    summary = {"task": task, "protocol": protocol | {"sequence_length": length + 1}}  # with a CLS token
    assert find_obstacles(summary_of(summary), find_published(row | {"attention": "mha"})) == []
    reasons = find_obstacles(summary_of(summary), find_published(row | {"attention": "sinkformer"}))
    assert reasons == [f"sequences of {length + 1} tokens, the paper 1000"]


LRA_IMAGE = {"paper": "sliceformer", "table": "table2", "task": "lra_image", "metric": "test/accuracy"}


def arena(**changes: Any) -> dict[str, Any]:
    """The summary of a run of Sliceformer on LRA Image under the published protocol, some of its facts changed."""
    protocol = {"official": True, "num_train": 45_000, "selection": "best_val", "epochs": None, "steps": 46_800}
    protocol |= {"sequence_length": 1025, **changes}
    cell = LRA_IMAGE | {"attention": "sliceformer", "variant": "ascend"}
    return {"task": "lra_image", "published": cell, "metrics": {}, "parameters": 343_370, "protocol": protocol}


def test_runs_counted_in_steps_are_compared_by_the_steps_of_their_row_and_by_length() -> None:
    assert str(compared(arena())).endswith("equal protocol")
    assert str(compared(arena(steps=35_000))).endswith("35000 steps, the paper 46800")
    assert str(compared(arena(steps=None, epochs=200))).endswith("200 epochs, the paper 46800 steps")
    assert str(compared(arena(sequence_length=1023))).endswith("sequences of 1023 tokens, the paper 1024")
    softmax = arena(steps=35_000) | {"published": LRA_IMAGE | {"attention": "mha"}}
    assert str(compared(softmax)).endswith("equal protocol")


def test_an_equal_protocol_is_compared_also_where_the_best_test_epoch_gives_the_metric_its_name() -> None:
    line = "test/accuracy: ours 0.8462, published 0.8481 (csp table3), equal protocol"
    by_best_epoch = SUMMARY | {"metrics": {"test/accuracy_best_test_epoch": 0.8462}}
    assert compared(SUMMARY) == compared(by_best_epoch) == line


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"official": False, "data": "CIFAR-10 (unofficial copy 1a2b)"}, "unofficial copy 1a2b"),
        ({"num_train": 45_000}, "45000 training examples, the paper 50000"),
        ({"limit_train": 0.5}, "only part of the data"),
        ({"limit_test": 100}, "only part of the data"),
        ({"limit_train": None, "limit_train_batches": 0.5}, "only part of the data"),
        ({"selection": "best_val"}, "chosen by best_val, the paper's by best_test"),
        ({"epochs": 10}, "10 epochs, the paper 100"),
    ],
)
def test_a_different_protocol_is_said_not_to_compare(changes: dict[str, Any], reason: str) -> None:
    line = compared(SUMMARY | {"protocol": PROTOCOL | changes})
    assert line.startswith("test/accuracy: ours 0.8462, published 0.8481 (csp table3), not comparable: ")
    assert reason in line
    assert ";" not in line  # nothing else differs


def test_samsa_s_numbers_of_peptides_carry_their_reasons_and_stand_beside_no_number_of_the_benchmark() -> None:
    own = [cell for cell in published_results() if cell.paper == "samsa" and cell.task == "peptides_func"]
    trained = [cell for cell in own if cell.table == "table1" or cell.attention == "samsa"]
    assert len(trained) == 8 and {cell.metric for cell in trained} == {"test/average_precision_samsa"}
    assert {cell.metric for cell in set(own) - set(trained)} == {"test/average_precision"}
    protocol = {"official": True, "num_train": 10_873, "epochs": 160, "selection": "a rule it does not state"}
    for cell in trained:
        summary = {"task": "peptides_func", "protocol": protocol}
        reasons = " ".join(find_obstacles(summary_of(summary), published_results()[cell]))
        assert "validation split" in reasons and "not the benchmark's" in reasons


def test_a_model_of_another_size_does_not_compare() -> None:
    assert find_obstacles(summary_of(SUMMARY | {"parameters": 6_570_000}), find_published(CELL)) == [
        "6570000 parameters, the paper 6.38 million"
    ]
    rounded = SUMMARY | {"parameters": 6_377_994 + 512 * 2}
    assert find_obstacles(summary_of(rounded), find_published(CELL)) == []


def test_what_a_summary_does_not_say_counts_as_unequal() -> None:
    line = compared({"published": CELL})
    assert line.startswith("test/accuracy: ours unknown")
    assert line.count(";") == 5
    unknown = {**CELL, "paper": "sliceformer", "table": "table2", "task": "lra_pathx", "attention": "mha"}
    assert "not known here" in str(compared({"published": unknown}))
    assert compared({"published": None, "metrics": {}}) is compared({}) is None, "without a cell"
