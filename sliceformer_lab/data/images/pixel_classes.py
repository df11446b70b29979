"""The classes of pixels: the target of those without one, and the commonest class at each place."""

import torch
from torch import Tensor

from sliceformer_lab.batch import NO_CLASS


def commonest_class(targets: Tensor) -> Tensor:
    """The commonest class at each place of masks (n, H, W): (H, W). Places without any have the commonest of all."""
    known = targets != NO_CLASS
    classes = int(targets.max().clamp_min(0)) + 1
    counts = torch.stack([(targets == one).sum(dim=0) for one in range(classes)])  # (K, H, W)
    overall = targets[known].bincount(minlength=classes)
    return torch.where(counts.sum(dim=0) > 0, counts.argmax(dim=0), overall.argmax())
