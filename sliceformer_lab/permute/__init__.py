"""Channel-wise permutations of tokens: every shift and sort goes through `shift_sort`.

Attentions use only this function; `backend` chooses the implementation.
"""

from sliceformer_lab.permute.backend import available_backends, missing_backends, use_backend
from sliceformer_lab.permute.op import shift_sort, shift_sort_index

__all__ = ["available_backends", "missing_backends", "shift_sort", "shift_sort_index", "use_backend"]
