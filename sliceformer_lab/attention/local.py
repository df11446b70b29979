"""Local attention: softmax inside blocks of tokens."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.blocked import attend_blocks, real_tokens, to_blocks, to_tokens
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class Local(QueryKeyAttention):
    """Softmax attention within each block of `block_size` tokens. (B, N, dim) -> (B, N, dim).

    Blocks are contiguous and the last may be short. `block_layout=strided_lra` uses the blocks of the published LRA
    code for samples of max_len: K = max_len // block_size + 1 blocks, each of every K-th token. Unlike there, the
    padding mask follows the tokens. Raises ValueError for strided_lra without spec.max_len.
    """

    complexity = "N C b"
    source = "Tay et al. 2021 (Long Range Arena), local attention"
    deviation = "LRA: strided blocks, as block_layout=strided_lra, under a padding mask of contiguous ones"

    def __init__(
        self,
        spec: LayerSpec,
        *,
        block_size: Count = 50,
        block_layout: Literal["contiguous", "strided_lra"] = "contiguous",
    ) -> None:
        super().__init__(spec)
        self.block_size = block_size
        self.stride = None if block_layout == "contiguous" else self._published_stride()
        self.order_sensitive = 1 < (self.stride or block_size) < (spec.max_len or block_size + 1)

    def _published_stride(self) -> int:
        if self.spec.max_len is None:
            raise ValueError("block_layout=strided_lra counts the blocks of the longest sequence; set max_len")
        return self.spec.max_len // self.block_size + 1

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        num_tokens = q.shape[2]
        run = self.stride or min(self.block_size, num_tokens)  # tokens in a row of the table of blocks
        full = padding is None and num_tokens % run == 0
        seen = None if full else self._swap_strides(to_blocks(real_tokens(q, padding), run)).mT  # (B or 1, 1, K, 1, b)
        q, k, v = (self._swap_strides(to_blocks(t, run)) for t in (q, k, v))  # (B, H, K, b, D or E)
        return to_tokens(self._swap_strides(attend_blocks(q, k, v, seen, dropout)), num_tokens)

    def _swap_strides(self, blocks: Tensor) -> Tensor:
        """Contiguous blocks are the rows of a table, strided blocks its columns."""
        return blocks if self.stride is None else blocks.transpose(2, 3)
