"""A launcher that writes the end of a run in place of training it, for tests of what happens around runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from support.run_folders import write_run

from sliceformer_lab.errors import DivergedError, Interrupted
from sliceformer_lab.runs.folder import CONFIG
from sliceformer_lab.runs.job_state import JOB, record_refusal
from sliceformer_lab.runs.sweep import override_key
from sliceformer_lab.sweeps.queue import Launcher, Queue

Words = Mapping[str, str]
SECONDS = 3  # that each run says it took
DIGESTS = {"test": "0a1b"}  # of the splits that every run reads


class WrittenRuns(Launcher):
    """Ends each job with the accuracy that `accuracy` gives for its words.

    None: it diverges; -1: its process is killed; -2: it is stopped and has saved a checkpoint.

    The process of the search is killed before job number `killed_at`, counted over all calls.
    """

    measures = False

    def __init__(
        self, accuracy: Callable[[Words], float | None], killed_at: int | None = None, metric: str = "accuracy"
    ) -> None:
        self._accuracy, self._killed_at, self._metric = accuracy, killed_at, metric
        self.done: list[str] = []

    def run(self, queue: Queue) -> bool:
        """Writes the folder of every job that is left."""
        while (job := queue.take()) is not None:
            if len(self.done) == self._killed_at:
                raise Interrupted("killed", 9)
            self.done.append(job.name)
            words = {override_key(word): word.partition("=")[2] for word in job.words}
            value = self._accuracy(words)
            if value is None:
                record_refusal(queue.sweep.place(job), DivergedError("the training loss became nan"))
                continue
            if value == -2:
                record_refusal(queue.sweep.place(job), Interrupted("stopped by SIGTERM", 15))
                continue
            if value == -1:
                (queue.sweep.place(job) / CONFIG).parent.mkdir(parents=True, exist_ok=True)
                (queue.sweep.place(job) / CONFIG).touch()
                continue
            metrics = {f"val/{self._metric}": value}
            is_scored = words.get("score_test") != "false"
            if is_scored:
                metrics[f"test/{self._metric}"] = value - 0.01
            best = {"epoch": 0, "step": 1, "metric": f"val/{self._metric}", "value": value}
            place = queue.sweep.place(job)
            (place / JOB).unlink(missing_ok=True)  # of an attempt that failed
            split = words.get("data.split_seed")  # digits have no test split of their own
            digests = DIGESTS if split is None else {stage: f"{stage} {split}" for stage in DIGESTS}
            facts = {"metrics": metrics, "best": best, "digests": digests, "split_seed": split and int(split)}
            cost = {"command": [*job.words], "wall_seconds": SECONDS}
            facts |= {"protocol": {"score_test": is_scored}}
            write_run(place, words["attention"], int(words["seed"]), value, **facts, **cost)
        return True
