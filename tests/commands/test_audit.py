"""An audit declares, tunes all rows alike, scores the test set once, and ends with a verdict; it can stop anywhere."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support import written_runs
from support.comparisons import audit, page_of, read_results
from support.run_folders import read_summary, write_run
from support.written_runs import DIGESTS, Words, WrittenRuns

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.compare import equal_time, results
from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.commands.compare.compare_rows import row_words
from sliceformer_lab.commands.compare.equal_time import Times
from sliceformer_lab.commands.compare.reference_scores import mean_references
from sliceformer_lab.commands.compare.trials_of_rows import check_one_data
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import DataError, Interrupted, LabError, NoVerdictError
from sliceformer_lab.runs.files import digest_of
from sliceformer_lab.runs.names import comparison_folder
from sliceformer_lab.runs.score_options import score_options
from sliceformer_lab.training.timing import StepTime

pytestmark = pytest.mark.usefixtures("unwritten_pictures")

Ended = tuple[Path, WrittenRuns, WrittenRuns]
MEANS = {"csp": 0.9, "identity": 0.7, "mha": 0.9}


def scores(words: Words) -> float:
    """Best at 3e-3; reporting seeds differ a little, and not alike for all attentions."""
    penalty = 0.0 if words["optim.lr"] == "0.003" else 0.1
    seed = int(words["seed"])
    return MEANS[words["attention"]] - penalty + 0.001 * (seed % (3 if words["attention"] == "csp" else 4))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The folder of an audit of csp against no mixing, and the launchers that ran it: until a kill, and after it."""
    folder, first, second = tmp_path_factory.mktemp("audit"), WrittenRuns(scores, killed_at=8), WrittenRuns(scores)
    with pytest.raises(Interrupted):
        audit(folder, first, axes=("params",))
    assert not (folder / "audit" / "report").exists()  # nobody looks at half the seeds
    audit(folder, second, axes=("params",))
    return folder, first, second


def test_an_audit_ends_with_a_verdict_and_one_sentence(ended: Ended) -> None:
    folder, *_ = ended
    found = read_results(folder / "audit")
    (one,) = found["outcomes"]
    assert one["verdict"] == "better" and one["holm_p"] < 1e-6
    assert one["findings"]["params"]["sign_flip_p"] == pytest.approx(1 / 32)
    assert found["sentence"].startswith("digits, equal parameters: csp is better than identity by 19.98 ± ")
    assert "points (6 seeds, Holm p < .001)" in found["sentence"]
    page = page_of(folder)
    assert found["sentence"] in page and "so no claim that the task needs csp" in page and "over seeds" in page
    assert "*p* is of the same Student's test." in page and "The ledger counts 0 evaluations" in page  # written runs
    assert page.count("**") == 2 and "**better**" in page  # bold is for verdicts
    assert page.count("python -m sliceformer_lab audit attention=csp against=identity") == 1
    for name in ("differences.png", "learning_rate.png"):
        assert (folder / "audit" / "report" / name).read_bytes().startswith(b"\x89PNG")


def test_trials_and_reports_have_their_own_seeds_and_only_reports_score_the_test_set(ended: Ended) -> None:
    folder, first, second = ended
    names = [*first.done, *second.done]
    tried = [name for name in names if name.startswith("trial")]
    assert {name.partition("-seed")[2] for name in tried} == {"0", "1"}
    assert {int(name.partition("-seed")[2]) for name in names if name.startswith("report")} == set(range(100, 106))
    for name in names:
        metrics = read_summary(folder / "audit" / "runs" / name)["metrics"]
        assert ("test/accuracy" in metrics) == name.startswith("report")
    found = read_results(folder / "audit")
    assert {name: point["rate"] for name, point in found["chosen"].items()} == {"csp": 3e-3, "identity": 3e-3}
    assert [trial["point"]["rate"] for trial in found["trials"]["csp"]] == [1e-3, 3e-3, 1e-2, 2e-3]  # and the recipe's


def test_rows_have_one_solved_width_and_the_declaration_comes_first(ended: Ended) -> None:
    folder, *_ = ended
    jobs = json.loads((folder / "audit" / "runs" / "sweep.json").read_text())["jobs"]
    words = {name: next(job["words"] for job in jobs if f"-{name}-" in job["name"]) for name in ("csp", "identity")}
    assert "encoder.mlp_dim=192" in words["identity"]
    ways = read_results(folder / "audit")["ways"]["csp"]
    assert len(ways) == 3 and any(way.startswith("attention.inner_mult") for way in ways)
    declared = json.loads((folder / "audit" / "audit.json").read_text())
    assert declared["comparisons"] == [["csp", "identity"]] and declared["margin"]["amount"] == 0.005
    first = min((folder / "audit" / "runs").glob("*/summary.json"), key=lambda file: file.stat().st_mtime_ns)
    assert (folder / "audit" / "audit.json").stat().st_mtime_ns < first.stat().st_mtime_ns


def test_a_stopped_audit_goes_on_without_repeating_a_run_and_keeps_its_declaration(ended: Ended) -> None:
    folder, first, second = ended
    assert len(first.done) == 8 and len({*first.done, *second.done}) == len(first.done) + len(second.done)
    with pytest.raises(ConfigError, match="differs in options, reporting_seeds; choose another"):
        audit(folder, second, axes=("params",), seeds=7)


@pytest.mark.parametrize("command", ["tune", "audit"])
def test_a_search_and_an_audit_of_another_table_have_another_folder(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["task=text_csv", "data.file=table.csv"]
    (tmp_path / "table.csv").write_text("text,label\ngood,pos\nbad,neg\n")
    first = comparison_folder(command, "out", words, 1)
    assert first == comparison_folder(command, "out", words, 1)
    (tmp_path / "table.csv").write_text("text,label\ngood,neg\nbad,pos\n")
    assert first != comparison_folder(command, "out", words, 1)


def test_an_audit_in_a_named_folder_does_not_go_on_with_another_table(tmp_path: Path) -> None:
    table, rows = tmp_path / "table.csv", [f"{word} {i},{word}" for word in ("good", "bad") for i in range(40)]
    words = ("task=text_csv", "data.tokens=bytes", "encoder=tiny", f"data.file={table}")
    table.write_text("\n".join(["text,label", *rows]))
    audit(tmp_path, WrittenRuns(scores), words=words)
    recorded = json.loads((tmp_path / "audit" / "runs" / "sweep.json").read_text())["data"]
    assert recorded == {str(table): digest_of(table)}
    table.write_text("\n".join(["text,label", *reversed(rows)]))
    with pytest.raises(ConfigError, match="differs in data; choose another folder="):
        audit(tmp_path, WrittenRuns(scores), words=words)


def test_an_audit_does_not_go_on_after_its_set_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted):
        audit(tmp_path, WrittenRuns(scores, killed_at=5))
    monkeypatch.setattr(written_runs, "DIGESTS", {"test": "2c3d"})  # of a published set, which no plan has
    with pytest.raises(DataError, match=r" differ in the test data, so they are not compared"):
        audit(tmp_path, WrittenRuns(scores))


def test_runs_of_two_seeds_with_other_training_data_are_not_compared(tmp_path: Path) -> None:
    for seed, train in enumerate("aab"):
        check_one_data(tmp_path)
        write_run(tmp_path / f"run-{seed}", seed=seed, digests={"train": train, "val": "a", "test": "b"})
    with pytest.raises(DataError, match=r"run-0 and run-2 in .* differ in the training data"):
        check_one_data(tmp_path)


def test_a_failed_run_is_no_result_and_waits_for_retry(tmp_path: Path) -> None:
    launcher = WrittenRuns(lambda words: -1 if words["attention"] == "mha" else scores(words))
    with pytest.raises(LabError, match=r"runs of this audit failed, and .* is no result; .*died twice; .*retry=true"):
        audit(tmp_path, launcher, against=("mha", "identity"))
    assert {launcher.done.count(name) for name in launcher.done if "-mha-" in name} == {2}
    with pytest.raises(LabError, match="failed"):
        audit(tmp_path, WrittenRuns(scores), against=("mha", "identity"))
    found = audit(tmp_path, WrittenRuns(scores), against=("mha", "identity"), retry=True)
    assert [one["verdict"] for one in found["outcomes"]] == ["equivalent", "better"]


def test_a_row_that_does_not_learn_adds_no_trials_and_is_not_compared(tmp_path: Path) -> None:
    launcher = WrittenRuns(
        lambda words: 0.1 + 0.01 * (int(words["seed"]) % 2) if words["attention"] == "mha" else scores(words)
    )
    found = audit(tmp_path, launcher, against=("mha", "identity"))
    assert "csp learns this task (90.05 on validation), mha in this form did not at any of 4 rates" in found["sentence"]
    assert found["outcomes"][0]["reason"] == "mha did not learn at any of 4 rates"
    assert found["outcomes"][1]["holm_p"] == found["outcomes"][1]["findings"]["own"]["p"]  # a family of one
    assert not any(name.startswith("report-mha") for name in launcher.done)


def test_a_verdict_is_withheld_if_the_losing_row_is_best_at_the_largest_rate_of_all(tmp_path: Path) -> None:
    def rising(words: Words) -> float:
        gain = 0.1 * math.log10(float(words["optim.lr"])) if words["attention"] == "identity" else 0.0
        return scores(words | {"optim.lr": "0.003"}) + gain

    found = audit(tmp_path, WrittenRuns(rising))
    (one,) = found["outcomes"]
    assert (one["verdict"], one["would_be"]) == ("withheld", "better")
    because = "'better' is withheld, because the best learning rate of identity is the smallest or largest tried"
    assert "no verdict against identity (+" in found["sentence"] and because in found["sentence"]
    assert "shown to differ" not in found["sentence"]


def test_only_the_stronger_positions_on_validation_are_compared(tmp_path: Path) -> None:
    launcher = WrittenRuns(lambda words: scores(words) - 0.2 * (words.get("encoder.position") == "sincos2d"))
    found = audit(tmp_path, launcher, against=("mha_sincos2d", "mha_rope"))
    assert [one["reason"] for one in found["outcomes"]] == ["mha_rope has the stronger positions on validation", None]
    assert found["outcomes"][1]["verdict"] == "equivalent"
    assert not any(name.startswith("report-mha_sincos2d") for name in launcher.done)
    found = audit(tmp_path / "subject", WrittenRuns(scores), subject="mha_rope", against=("mha_sincos2d",))
    assert found["outcomes"][0]["reason"] is None, "the subject takes part, whatever its positions are"


def test_a_way_to_equal_size_that_diverged_with_one_seed_is_not_taken(tmp_path: Path) -> None:
    def accuracy(words: Words) -> float | None:
        lucky = None if words["seed"] == "1" else 0.99
        return lucky if "attention.inner_mult" in words else scores(words)

    ways = audit(tmp_path, WrittenRuns(accuracy), axes=("params",))["ways"]["csp"]
    assert len(ways) == 2 and all("attention.inner_mult" not in way for way in ways)


def test_an_audit_of_molecules_asks_for_mha_with_and_without_the_bias(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["smiles,target", *(f"{'C' * (1 + i % 7)},{i % 2}.5" for i in range(80))]))
    words = ("task=molecule_csv", f"data.file={table}", "data.targets=[target]", "task.bias=true")
    with pytest.raises(NoVerdictError):  # written runs have no error of molecules
        audit(tmp_path, WrittenRuns(scores), against=("mha",), seeds=3, words=words)
    page = page_of(tmp_path)
    assert "csp_sort_only and mha_no_bias, so no claim" in page and "mha_rope" not in page


def test_each_reporting_run_has_a_split_of_its_own_and_so_have_the_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scored(run: Path, seconds: float) -> list[dict[str, Any]]:
        return [{"name": "forest", "metrics": {"test/accuracy": read_summary(run)["split_seed"] / 10}}]

    monkeypatch.setattr(results, "reference_scores", scored)
    found = audit(tmp_path, WrittenRuns(scores), splits=6)
    jobs = json.loads((tmp_path / "audit" / "runs" / "sweep.json").read_text())["jobs"]
    words = {word for job in jobs for word in job["words"] if word.startswith("data.split_seed")}
    assert words == {f"data.split_seed={split}" for split in range(6)}
    assert "6 splits" in found["sentence"] and "over splits" in page_of(tmp_path)
    assert "other splits test some of the examples that chose them" in page_of(tmp_path)
    assert found["references"] == [{"name": "forest", "metrics": {"test/accuracy": pytest.approx(0.25)}}]
    summary = next((tmp_path / "audit" / "runs").glob("report*/summary.json"))
    summary.write_text(summary.read_text().replace('"65e5"', '"other data"'))
    with pytest.raises(NoVerdictError, match="the runs have 2 data fingerprints"):
        audit(tmp_path, WrittenRuns(scores), splits=6)


def test_a_reference_has_the_mean_of_all_splits_or_the_reason_why_one_lacks_it() -> None:
    first = [{"name": "forest", "metrics": {"test/accuracy": 0.8}}, {"name": "k-NN", "metrics": {"test/accuracy": 0.5}}]
    second = [{"name": "forest", "metrics": {"test/accuracy": 0.6}}, {"name": "k-NN", "skipped": "it takes too long"}]
    forest, neighbour = mean_references([first, second])
    assert forest == {"name": "forest", "metrics": {"test/accuracy": pytest.approx(0.7)}}
    assert neighbour == {"name": "k-NN", "skipped": "it takes too long"}
    assert mean_references([first, []])[0]["skipped"] == "a split has no such reference" and mean_references([]) == []


def test_equal_time_trains_faster_rows_longer_and_a_noisy_machine_is_refused_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"csp": StepTime(0.5, 0.2), "identity": StepTime(0.5, 0.2), "mha": StepTime(1.0, 0.2)}
    monkeypatch.setattr(
        equal_time, "measure_times", lambda _: Times(rows, 152, False, 19, 3.0, "here", "the load was 3.0")
    )
    with pytest.raises(ConfigError, match=r"axes=time: the load was 3\.0; use a quieter machine, or go on with force"):
        audit(tmp_path, WrittenRuns(scores), axes=("time",), words=("attention.group_size=4",))
    ledger = tmp_path / "data" / "test_ledger.jsonl"
    ledger.parent.mkdir()
    options = score_options(job_config(["task=digits", "attention=csp"]))
    seen = {
        "task": "digits",
        "test_digest": DIGESTS["test"],
        "attention": "csp",
        "options": options | {"encoder.depth": 9, "optim.lr": 1.0, "optim.steps": 7},
        "seed": 100,
        "run": "before",
    }
    before = datetime.now(timezone(timedelta(hours=14))) - timedelta(hours=1)  # as text, later than now elsewhere
    seen |= {"commit": None, "time": before.isoformat()}
    other = seen | {"test_digest": "0" * 64, "options": options | {"encoder.dim": 9}}
    ledger.write_text(f"{json.dumps(seen)}\n{json.dumps(other)}\n")
    chosen = {"axes": ("time",), "words": ("attention.group_size=4",), "force_time": True}
    found = audit(tmp_path, WrittenRuns(scores), **chosen)
    assert "times were measured on a noisy machine (the load was 3.0)" in found["sentence"]
    jobs = json.loads((tmp_path / "audit" / "runs" / "sweep.json").read_text())["jobs"]
    assert all("optim.steps=304" in job["words"] and "optim.warmup_steps=100" in job["words"] for job in jobs)
    for job in jobs:  # options of the attention belong to the subject
        assert ("attention.group_size=4" in job["words"]) == ("-csp-" in job["name"])
    assert found["sentence"].startswith("digits (after looking), ")  # the ledger knew csp with other options
    assert "test scores of csp with other attention.group_size and encoder.depth had been seen" in found["sentence"]
    assert found["evaluations_of_this_test_set"] == 1


@pytest.mark.parametrize(
    ("subject", "word", "takers"),
    [
        ("csp", "attention.group_size=4", {"csp", "csp_sort_only"}),  # a shift alone has groups of one token
        ("csp", "attention.shift=index", {"csp", "csp_shift_only"}),
        ("samsa", "attention.sample_size=24", {"samsa", "samsa_random"}),
        ("samsa", "attention.mode=soft", {"samsa"}),  # an option of its scores
    ],
)
def test_the_parts_of_a_subject_take_its_options_but_those_that_make_them_parts(
    subject: str, word: str, takers: set[str]
) -> None:
    options = CompareOptions(subject=subject, against=None, folder="", words=("task=digits", word))
    assert {name for name in options.names if word in row_words(name, options)} == takers


@pytest.mark.slow
@pytest.mark.timeout(900)  # 20 runs, each a process
def test_an_audit_of_a_real_task_says_that_no_mixing_does_not_learn_it_and_compares_no_operators(
    tmp_path: Path,
) -> None:
    words = ["task=probe_back", "data.level=easy", "data.num_test=256", "optim.steps=100", "callbacks=minimal"]
    own = ["attention=mha", "against=identity", "rates=[3e-3]", "seeds=6", "axes=params,time"]
    places = [f"folder={tmp_path / 'audit'}", f"paths.data={tmp_path}", "launcher.threads=1", "force_time=true"]
    assert main(["audit", *own, *words, *places]) == 3
    found = read_results(tmp_path / "audit")
    assert "mha learns this task" in found["sentence"]
    assert "identity in this form did not at any of" in found["sentence"]
    assert found["learned"] == {"mha": True, "identity": False}
