"""Channel-wise permutations of tokens. Everything that shifts or sorts goes through `shift_sort`.

Attentions know this one function; which implementation runs behind it is decided in `backend`.
"""

from sliceformer_lab.permute.backend import available_backends, missing_backends, use_backend
from sliceformer_lab.permute.op import shift_sort, shift_sort_index

__all__ = ["available_backends", "missing_backends", "shift_sort", "shift_sort_index", "use_backend"]
