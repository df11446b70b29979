"""The embedding of tokens."""

from __future__ import annotations

import torch

from sliceformer_lab.encoder.embed import TokenEmbedding


def test_token_dropout_takes_whole_tokens_in_training_and_never_the_cls_token() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(50, 0, 8, cls=True, dropout=0.25)
    ids = torch.randint(1, 50, (40, 30))
    whole = embedding.eval()(ids)
    training = embedding.train()(ids)
    dropped = (training == 0).all(-1)
    assert not dropped[:, 0].any() and abs(dropped[:, 1:].float().mean() - 0.25) < 0.05
    torch.testing.assert_close(training[:, 0], whole[:, 0])
    torch.testing.assert_close(training[:, 1:][~dropped[:, 1:]], whole[:, 1:][~dropped[:, 1:]] / 0.75)


def test_embedding_without_dropout_draws_no_random_numbers() -> None:
    embedding = TokenEmbedding(50, 0, 8).train()
    state = torch.get_rng_state()
    embedding(torch.ones(2, 3, dtype=torch.long))
    assert torch.equal(torch.get_rng_state(), state)
