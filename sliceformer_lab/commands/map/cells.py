"""The cells of a map: one attention on one probe, and its jobs."""

from __future__ import annotations

from dataclasses import dataclass

from sliceformer_lab.commands.compare.compare_rows import RUN_WORDS, TRIAL_WORD, checked_row
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.sweep import PlannedJob

WORDS_OF_PROBE = {
    "back_far": ("task=probe_back", "data.max_len=128", "data.distance=37", "data.batch_size=16"),
}
WORDS_OF_ATTENTION = {  # their usual sizes would be all tokens of a probe: here 8 tokens, blocks of 8, or 8 summaries
    "samsa": ("attention.sample_size=8",),
    "local": ("attention.block_size=8",),
    "longformer": ("attention.back=4", "attention.ahead=3"),
    "bigbird": ("attention.block_size=1",),  # 3 around the token, the first and last, 3 random ones
    "sparse": ("attention.block_size=8", "attention.num_summary=1"),
    "sinkhorn": ("attention.block_size=8",),
    "reformer": ("attention.chunk_length=4",),  # a token attends to two chunks
    "luna": ("attention.memory_size=8",),
    "linformer": ("attention.num_slots=8",),
    "agent": ("attention.agents=8",),
}


@dataclass(frozen=True)
class Floors:
    """What a probe gives without the asked ability."""

    chance: float  # the best from the asked token and its position
    bag_level: float | None  # the best from the set of symbols without their arrangement; None: not defined


@dataclass(frozen=True, eq=False)
class Cell:
    """One attention on one probe."""

    attention: str
    probe: str
    options: MapOptions
    floors: Floors | None = None  # of the probe; None: no attention of the map can run on it
    refused: str | None = None  # why it stays empty

    @property
    def words(self) -> tuple[str, ...]:
        """The overrides of all its runs, without seed and learning rate. Those of the user come last, so they win."""
        probe = WORDS_OF_PROBE.get(self.probe, (f"task=probe_{self.probe}",))
        own = (f"attention={self.attention}", *WORDS_OF_ATTENTION.get(self.attention, ()))
        return (*probe, *own, *RUN_WORDS, *self.options.words)

    def job(self, rate: float, seed: int) -> PlannedJob:
        """The job of a learning rate and a seed, which scores the test set if that is a reporting seed."""
        is_report = seed in self.options.reporting_seeds
        words = (*self.words, *(() if is_report else (TRIAL_WORD,)), f"seed={seed}", f"optim.lr={rate:g}")
        return PlannedJob(f"{self.probe}-{self.attention}-lr{rate:g}-{'seed' if is_report else 'trial'}{seed}", words)


def checked_cells(options: MapOptions) -> tuple[list[Cell], list[RunPlan]]:
    """All cells, and the plans of those that can be filled. Raises LabError if there are none."""
    places = [(attention, probe) for probe in options.probes for attention in options.attentions]
    plans: list[RunPlan] = []
    floors: dict[str, Floors] = {}
    refused: dict[tuple[str, str], str] = {}
    for attention, probe in places:
        try:
            plan, spec = checked_row(Cell(attention, probe, options).words, options.seed)
        except LabError as error:
            refused[attention, probe] = " ".join(str(error).split())
            continue
        plans.append(plan)
        floors[probe] = Floors(float(spec.chance or 0.0), spec.bag_level)
    if not plans:
        raise ConfigError(f"no cell of this map can be filled, the first because of: {next(iter(refused.values()))}")
    return [Cell(*place, options, floors.get(place[1]), refused.get(place)) for place in places], plans
