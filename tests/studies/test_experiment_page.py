"""The page of an experiment is computed from committed lines, and a reader can compute its numbers again."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import experiment_page
import numpy as np
import pytest
import run_experiment
import yaml
from experiment_page import FOLDERS, STUDIES, Results, read_results
from marked_sections import section
from run_experiment import Experiment, Job, job_words, packed, read_experiments
from scipy import stats
from support.run_folders import write_run

from sliceformer_lab.config.compose import compose_root
from sliceformer_lab.errors import ConfigError, DataError, RunFolderError
from sliceformer_lab.runs.names import register_resolvers

DECLARED = {
    "command": "task=digits",
    "rows": {name: f"attention={name}" for name in ("csp", "mha", "mean", "identity")},
    "rates": [0.001, 0.003, 0.01],
    "recipe_rate": 0.001,
    "tuning_seeds": [100, 101],
    "seeds": [0, 1, 2, 3, 4],
    "metric": "val/accuracy",
    "better": "higher",
    "constant": 0.1,
    "num_val": 400,
    "num_test": 300,
    "margin": 0.005,
    "subject": "csp",
}
DIGESTS = {"train": "a" * 64, "val": "b" * 64, "test": "c" * 64}
CHANCES = {"csp": 0.8, "mha": 0.95, "mean": 0.8, "identity": 0.1}  # of a right answer
COMPLETE = [results for name in FOLDERS for results in read_results(STUDIES / name) if results.missing == (0, 0)]


def made_up_lines() -> list[dict[str, Any]]:
    """Lines of all runs: rows with easy and hard examples, of which `identity` has learned nothing."""
    rng, lines = np.random.default_rng(0), []
    ease = rng.normal(0, 0.1, 300)
    for row, chance in CHANCES.items():
        facts = {"row": row, "parameters": 100, "references": [], "digests": DIGESTS}
        for rate in (0.001, 0.003, 0.01):
            best = chance - (0.0 if rate == 0.003 or row == "identity" else 0.05)
            lines += [{"stage": "tune", "rate": rate, "seed": seed, "val": best, **facts} for seed in (100, 101)]
        rate = 0.001 if row == "identity" else 0.003
        for seed in range(5):
            right = rng.random(300) < chance + ease
            lines.append({"stage": "report", "rate": rate, "seed": seed, "val": chance, **facts} | packed(right))
    return lines


def write(folder: Path, lines: list[dict[str, Any]]) -> Results:
    """An experiment with these lines; those without words get the declared ones."""
    (folder / "experiment.yaml").write_text(yaml.safe_dump(DECLARED))
    (one,) = read_experiments(folder)
    worded = [line if "words" in line else line | {"words": job_words(one, Job.of(line))} for line in lines]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in worded))
    return read_results(folder)[0]


@pytest.mark.parametrize("place", ["made up", *range(len(COMPLETE))])
def test_means_intervals_and_p_follow_from_the_lines(place: str | int, tmp_path: Path) -> None:
    results = write(tmp_path, made_up_lines()) if isinstance(place, str) else COMPLETE[place]
    count, sign, scores = results.experiment.num_test, results.experiment.sign, {}
    # What a reader writes: unpack, subtract, and the mean squares of a table of seeds and examples.
    for line in map(json.loads, results.experiment.results.read_text().splitlines()):
        if line["stage"] == "report" and "test_right" in line:
            packed_bits = np.frombuffer(base64.b64decode(line["test_right"]), np.uint8)
            scores.setdefault(line["row"], {})[line["seed"]] = np.unpackbits(packed_bits, count=count).astype(float)
        elif line["stage"] == "report":
            floats = np.frombuffer(base64.b64decode(line["test_scores"]), "<f2")
            scores.setdefault(line["row"], {})[line["seed"]] = floats[:count].astype(float)
    found = {}
    for row, by_seed in scores.items():
        ours = scores[results.experiment.subject]
        d = sign * np.array([ours[seed] - by_seed[seed] for seed in by_seed])
        (s, e), m = d.shape, d.mean()
        seeds, examples = e * d.mean(1).var(ddof=1), s * d.mean(0).var(ddof=1)
        rest = ((d - d.mean(1)[:, None] - d.mean(0) + m) ** 2).sum() / ((s - 1) * (e - 1))
        v = max(seeds + examples - rest, seeds, examples) / (s * e)
        parts = seeds**2 / (s - 1) + examples**2 / (e - 1) + rest**2 / ((s - 1) * (e - 1))
        df = v**2 * (s * e) ** 2 / max(parts, 1e-300)
        p = 2 * stats.t.sf(abs(m) / max(v, 1e-300) ** 0.5, df)
        if s < 5 and row != results.experiment.subject:  # the test over seeds alone counts too
            p = max(p, stats.ttest_1samp(d.mean(1), 0).pvalue)
        found[row] = m, stats.t.ppf(0.975, df) * v**0.5, p
    ranked = sorted((found[row][2], row) for row in results.outcomes)
    adjusted = np.maximum.accumulate([(len(ranked) - i) * p for i, (p, _) in enumerate(ranked)])
    assert results.outcomes
    for (_, row), holm_p in zip(ranked, adjusted, strict=True):
        outcome = results.outcomes[row]
        finding = outcome.findings[experiment_page.AXIS]
        mean, half, p = found[row]
        assert finding.estimate.mean == pytest.approx(mean)
        assert finding.interval.high - mean == pytest.approx(half)
        assert finding.p == pytest.approx(p)
        assert outcome.holm_p == pytest.approx(min(1.0, holm_p))


@pytest.mark.parametrize("results", COMPLETE, ids=[results.experiment.results.stem for results in COMPLETE])
def test_differences_are_those_of_the_scores_beside_them_whichever_direction_is_better(results: Results) -> None:
    one = results.experiment
    cells = [line.strip("| ").split(" | ") for line in experiment_page.table(results).splitlines()[2:]]
    means = {row.strip("`"): float(score.partition(" ")[0]) for row, score, *_ in cells}
    compared = {row: cells[2] for cells in cells if (row := cells[0].strip("`")) in results.outcomes}
    assert set(compared) == set(results.outcomes)
    for row, difference in compared.items():
        assert float(difference.partition(" ")[0]) == pytest.approx(means[one.subject] - means[row], abs=0.02)
        assert means[one.subject] == means[row] or difference[0] == "+-"[means[one.subject] < means[row]]
    for reference in results.references:
        best = one.sign * max(one.sign * means[row] for row in one.rows)
        score = float(experiment_page.in_unit(reference["test"], one.metric))
        said = experiment_page.sentence(results).partition(f"minus {reference['name']}: ")[2]
        assert (float(said.partition(" ")[0]) > 0) == (best > score)


@pytest.mark.parametrize("kept", [0, 5, 43])
def test_a_partial_experiment_counts_what_is_missing_and_claims_nothing(kept: int, tmp_path: Path) -> None:
    lines = made_up_lines()
    assert len(lines) == 44
    tuning = [line for line in lines if line["stage"] == "tune"]
    rest = [line for line in lines if line["stage"] == "report"]
    text = experiment_page.section(write(tmp_path, [*tuning, *rest][:kept]))
    missing = max(0, 24 - kept), 20 - max(0, kept - 24)
    count = f"{missing[0]} of 24 tuning runs and {missing[1]} of 20 reporting runs are missing"
    assert text.startswith(f"**No verdict yet: {count}.**")
    assert not any(word in text for word in ("better", "worse", "±", "shown to differ"))


OTHER = "d" * 64


@pytest.mark.parametrize(
    ("number", "change", "fault"),
    [
        (44, {"digests": DIGESTS | {"test": OTHER}}, "line 44: other test data than in line 1"),
        (3, {"digests": DIGESTS | {"train": OTHER}}, "line 3: other train data than in line 1"),
        (
            9,
            {"words": ["task=digits", "attention=csp"]},
            "line 9: these words are not those that are declared: optim.lr=",
        ),
        (9, {"row": "samsa", "words": []}, "results.jsonl: experiment.yaml declares no row samsa"),
    ],
)
def test_a_line_of_other_data_or_words_is_refused(
    number: int, change: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    lines = made_up_lines()
    lines[number - 1] |= change
    with pytest.raises(DataError, match=fault):
        write(tmp_path, lines)


def test_training_data_may_follow_from_the_seed_and_a_job_has_one_line(tmp_path: Path) -> None:
    lines = [line | {"digests": DIGESTS | {"train": str(line["seed"])}} for line in made_up_lines()]
    assert write(tmp_path, lines).missing == (0, 0)
    with pytest.raises(DataError, match="line 45: the job of line 44 again"):
        write(tmp_path, [*lines, lines[-1]])


def test_a_run_gets_the_words_of_this_machine_and_adds_no_line_if_its_data_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, made_up_lines()[:-1])
    before, seen = (tmp_path / "results.jsonl").read_text(), []

    def trained(experiment: Experiment, job: Job, work: Path, words: list[str]) -> dict[str, Any]:
        seen.append(words)
        return asdict(job) | {"words": job_words(experiment, job), "digests": DIGESTS | {"test": OTHER}}

    monkeypatch.setattr(run_experiment, "run_job", trained)
    here = ["data.root=here", "paths.data=there", "data.num_workers=2"]
    with pytest.raises(DataError, match="line 44: other test data"):
        run_experiment.main(tmp_path, tmp_path / "runs", here)
    assert seen == [here] and (tmp_path / "results.jsonl").read_text() == before


@pytest.mark.parametrize("word", ["optim.epochs=1", "hydra.run.dir=x", "fast"])
def test_a_word_that_would_change_the_declared_runs_is_refused_before_the_first_run(word: str, tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(ConfigError, match=f"{word}: only words that say where things are"):
        run_experiment.main(tmp_path, tmp_path / "runs", ["data.root=here", word])
    assert not (tmp_path / "runs").exists()


def test_a_reference_on_other_data_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "svm_reference.json"
    file.write_text(json.dumps({"name": "oracle", "digests": DIGESTS}))
    assert len(write(tmp_path, made_up_lines()).references) == 1
    file.write_text(json.dumps({"name": "oracle", "digests": DIGESTS | {"train": OTHER}}))
    with pytest.raises(DataError, match=r"svm_reference\.json: learned from other data"):
        read_results(tmp_path)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_declared_experiment_composes_and_has_its_sections(name: str) -> None:
    register_resolvers()
    for results in read_results(STUDIES / name):
        one = results.experiment
        assert one.subject in one.rows and one.recipe_rate in one.rates and one.sign in (1, -1)
        assert section((STUDIES / name / "README.md").read_text(encoding="utf-8"), one.results.stem)
        assert compose_root([*one.command, *one.rows[one.subject]])


def test_with_one_tuning_seed_learning_is_judged_over_the_examples_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DECLARED, "tuning_seeds", [100])
    results = write(tmp_path, [line for line in made_up_lines() if line["seed"] != 101])
    assert results.learned == {"csp": True, "mha": True, "mean": True, "identity": False}


def test_one_reporting_run_fits_the_references_and_the_page_finds_them_in_any_line(tmp_path: Path) -> None:
    results = write(tmp_path, made_up_lines())
    one = results.experiment
    jobs = [Job("report", row, one.recipe_rate, seed) for row in one.rows for seed in one.seeds]
    jobs += [Job("tune", row, one.recipe_rate, seed) for row in one.rows for seed in one.tuning_seeds]
    assert [job for job in jobs if "reference=null" not in job_words(one, job)] == jobs[:1]
    metric = one.metric.replace("val/", "test/")
    lines = made_up_lines()
    lines[-1]["references"] = [{"name": "nearest neighbour", "metrics": {metric: 0.5}}]
    assert experiment_page.reference_scores(write(tmp_path, lines)) == {"nearest neighbour": 0.5}


def test_a_tuning_run_that_diverged_counts_as_the_constant_and_a_reporting_run_as_nothing(tmp_path: Path) -> None:
    one = write(tmp_path, []).experiment
    for stage in ("tune", "report"):
        job = Job(stage, "csp", 0.01, 101)
        command = job_words(one, job)
        write_run(tmp_path / run_experiment.job_name(one, job), command=command, status="diverged")
        if stage == "tune":
            line = run_experiment.run_job(one, job, tmp_path, [])
            assert (line["val"], line["val_std"]) == (0.1, 0.0)
            assert "| `csp` | – | – | diverged | – |" in experiment_page.section(Results(one, [line], []))
        else:
            with pytest.raises(RunFolderError, match="the run has status diverged: task=digits"):
                run_experiment.run_job(one, job, tmp_path, [])


def test_a_tie_goes_to_the_recipe_s_rate_whatever_float32_made_of_it(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(DECLARED))
    (one,) = read_experiments(tmp_path)
    scores = {0.001: 0.8999999761581421, 0.003: 0.9, 0.01: 0.8}  # the first is .9 in float32, and the recipe's
    runs = [(rate, seed) for rate in scores for seed in (100, 101)]
    lines = [{"stage": "tune", "row": "csp", "rate": rate, "seed": seed, "val": scores[rate]} for rate, seed in runs]
    assert one.chosen_rate("csp", lines) == 0.001


def test_a_chosen_rate_at_the_edge_of_those_tried_says_so(tmp_path: Path) -> None:
    best = {"csp": 0.001, "mha": 0.003, "mean": 0.01, "identity": 0.003}
    lines = made_up_lines()
    for line in lines:
        line["val"] = 0.9 if line["rate"] == best[line["row"]] else 0.8
    chosen = {row[0]: row[-1] for row in table_rows(experiment_page.tuning_table(write(tmp_path, lines)))}
    assert chosen["`csp`"] == "0.001, the smallest"
    assert chosen["`mha`"] == "0.003"
    assert chosen["`mean`"] == "0.01, the largest"


def table_rows(table: str) -> list[list[str]]:
    """The cells of a Markdown table below its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
