"""Features of whole samples: how they are scaled before they join the pooled vector."""

from __future__ import annotations

import torch
from torch import nn
from torch.testing import assert_close

from sliceformer_lab.encoder.whole_features import MAX_DEVIATIONS, WholeFeatures


def test_features_are_standardised_and_cut_and_constant_ones_count_as_zero() -> None:
    features = torch.tensor([[0.0, 100.0, 7.0], [1.0, 300.0, 7.0]])
    whole = WholeFeatures(3, 3)
    whole.layers = nn.Sequential(nn.Identity())
    whole.standardise(features)
    assert_close(whole(features), torch.tensor([[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]]))
    assert_close(whole(torch.tensor([[0.5, 9e9, 8.0]])), torch.tensor([[0.0, MAX_DEVIATIONS, 0.0]]))


def test_a_checkpoint_holds_mean_and_deviation() -> None:
    first, second = WholeFeatures(2, 4), WholeFeatures(2, 4)
    first.standardise(torch.tensor([[0.0, 5.0], [20.0, 9.0]]))
    second.load_state_dict(first.state_dict())
    assert_close(second.mean, torch.tensor([10.0, 7.0]))
    assert_close(second.scale, torch.tensor([0.1, 0.5]))
