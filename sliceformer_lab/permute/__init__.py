"""Channel-wise permutations of tokens. Everything that shifts or sorts goes through `shift_sort`.

Attentions know this one function; which implementation runs behind it is decided here.
"""

from sliceformer_lab.permute.reference import shift_sort, shift_sort_index

__all__ = ["shift_sort", "shift_sort_index"]
