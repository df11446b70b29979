"""Channel-wise permutations of tokens: every shift and sort goes through `shift_sort`.

Attentions use only this function; `backend` chooses the implementation, and `nn` has the layers CSP and Sliceformer.
"""

from . import nn
from .backend import available_backends, missing_backends, use_backend
from .op import shift_sort, shift_sort_index

__all__ = ["available_backends", "missing_backends", "nn", "shift_sort", "shift_sort_index", "use_backend"]
