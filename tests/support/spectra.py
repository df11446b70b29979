"""A spectrum record of random tokens."""

from __future__ import annotations

import numpy as np
import torch

from sliceformer_lab.measures.probe import measure_samples, over_samples
from sliceformer_lab.measures.probe_record import MEASURES, PLACES, ProbeRecord


def record(depth: int, epochs: tuple[int, ...], name: str = "CSP") -> ProbeRecord:
    """A record of random tokens, wider inside the operator than in the stream."""
    generator = torch.Generator().manual_seed(depth)
    lengths = torch.tensor([9, 6])
    layers = [
        [
            measure_samples(torch.randn(2, 9, 4 if place == "stream" else 8, generator=generator), lengths)
            for place in PLACES
        ]
        for _ in range(depth)
    ]
    stats = {measure: over_samples(layers, measure) for measure in MEASURES}
    return ProbeRecord(
        epochs=np.array(epochs),
        mean={measure: np.stack([mean] * len(epochs)) for measure, (mean, _, _) in stats.items()},
        std={measure: np.stack([std] * len(epochs)) for measure, (_, std, _) in stats.items()},
        attentions=np.array([name] * depth),
        sample_ids=np.arange(2),
        num_tokens=np.array([9, 6]),
        note="made up",
    )
