"""Triton kernels of `shift_sort`. They read the bits of the values as integers, so values are moved unchanged.

Programs are numbered along C first, so programs that run together read neighbouring sectors of the same rows, which
share L2 cache lines. `lengths`, `steps`, `descending` and `saved` may be None and are then removed at compile time.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

MAX_WINDOW = 16384  # tokens; a column of packed float32 keys then takes 128 KB of registers, half of a multiprocessor's
_MAX_KEY_BYTES = 65536  # of a program, unless one window has more; a key takes twice the bytes of a value
_VARYING = ("num_tokens", "num_channel_tiles", "num_row_tiles")  # not specialised, so lengths share machine code


def _power_of_two_from(number: int) -> int:
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Tile:
    """Rows (or windows) and channels of one program, and its warps of 32 threads."""

    rows: int
    columns: int
    num_warps: int


def copy_tile(num_rows: int, num_channels: int) -> Tile:
    """Tile of `roll` and `unsort_windows`, which only move; 32 rows took up to 2.5 times as long on an H100."""
    columns = min(64, _power_of_two_from(num_channels))
    rows = min(_power_of_two_from(num_rows), 512 // columns)
    return Tile(rows, columns, max(1, min(2, rows * columns // 256)))


def pair_tile(num_octets: int, num_channels: int) -> Tile:
    """Tile of `sort_pairs`, in which an element covers sixteen slots."""
    columns = min(64, _power_of_two_from(num_channels))
    rows = min(_power_of_two_from(num_octets), 256 // columns)
    return Tile(rows, columns, max(1, min(4, rows * columns // 32)))


def sort_tile(size: int, num_tokens: int, num_channels: int, itemsize: int) -> Tile:
    """Tile of `sort_windows`, in which `rows` are windows. All its keys are in registers.

    At 64, 1,024, 4,096 and 16,384 tokens within 8 % of the best of those tried on an H100: a few channels of a long
    window, and in 16 bits twice as many keys per thread. Keys of 32-bit values have 64 bits; 8192 fill a program.
    """
    length = _power_of_two_from(size)
    keys = max(length, min(4 * length, _MAX_KEY_BYTES // (2 * itemsize)), 4096)
    columns = min(64, _power_of_two_from(num_channels), keys // length)
    rows = min(_power_of_two_from(-(-num_tokens // size)), keys // (length * columns))
    keys_of_thread = 32 if itemsize == 2 and length >= 1024 else 16
    return Tile(rows, columns, max(1, length * rows * columns // (keys_of_thread * 32)))


@triton.jit
def _program(num_channel_tiles, num_row_tiles):
    """(sample, row tile, channel tile) of this program; the sample in 64 bits, because it is multiplied by N C."""
    index = tl.program_id(0)
    row_tile = (index // num_channel_tiles) % num_row_tiles
    return (index // num_channel_tiles // num_row_tiles).to(tl.int64), row_tile, index % num_channel_tiles


@triton.jit
def _shift_of(steps, channel, count, in_channels):
    """The shift of each channel, below `count`."""
    shift = channel * 0
    if steps is not None:
        shift = (tl.load(steps + channel, mask=in_channels, other=0) % count).to(tl.int32)
    return shift


@triton.jit
def _source(slot, shift, count):
    """(slot - shift) mod count for slot < count."""
    row = slot - shift
    return tl.where(row < 0, row + count, row)


@triton.jit
def _key(bits, infinity: tl.constexpr):
    """int32 in the order of torch.sort: both zeros are 0, NaN is limit - 1, and limit is reserved for padding."""
    limit: tl.constexpr = (1 << (bits.dtype.primitive_bitwidth - 1)) - 1
    wide = bits.to(tl.int32)
    magnitude = wide & limit
    key = tl.where(wide < 0, -magnitude, magnitude)
    return tl.where(magnitude > infinity, limit - 1, key)


@triton.jit(do_not_specialize=_VARYING)
def roll(
    values,  # (B, N, C) bits
    out,  # (B, N, C) bits
    swaps,  # (B, ceil(N / 16), C) uint8 or None: bit k % 8 of byte k // 8 is 1 if pair k was exchanged
    steps,  # (C,) int64
    lengths,  # (B,) int64
    num_tokens,
    num_channels,
    num_channel_tiles,
    num_row_tiles,
    backward: tl.constexpr,  # row r of `out` takes slot r + step instead of row r - step
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """The shift alone, forward and backward; with `swaps`, the backward pass of shift and sort of pairs."""
    sample, row_tile, channel_tile = _program(num_channel_tiles, num_row_tiles)
    row = row_tile * rows + tl.arange(0, rows)[:, None]
    channel = channel_tile * columns + tl.arange(0, columns)[None, :]
    in_channels = channel < num_channels
    inside = (row < num_tokens) & in_channels
    count = num_tokens
    if lengths is not None:
        count = tl.load(lengths + sample).to(tl.int32)
    real = (row < count) & in_channels
    shift = _shift_of(steps, channel, count, in_channels)
    if backward:
        shift = count - shift
    slot = _source(row, shift, count)
    if swaps is not None:
        packed = tl.load(
            swaps + (sample * tl.cdiv(num_tokens, 16) + slot // 16) * num_channels + channel, mask=real, other=0
        )
        slot = slot ^ ((packed.to(tl.int32) >> (slot // 2 % 8)) & 1)
    start = sample * num_tokens * num_channels
    moved = tl.load(values + start + slot * num_channels + channel, mask=real, other=0)
    tl.store(out + start + row * num_channels + channel, moved, mask=inside)


@triton.jit(do_not_specialize=_VARYING)
def sort_pairs(
    values,  # (B, N, C) bits
    out,  # (B, N, C) bits
    saved,  # as `swaps` of `roll`
    steps,
    lengths,
    descending,  # (windows, C) or (1, C) bool
    descending_stride,  # C or 0
    num_tokens,
    num_channels,
    num_channel_tiles,
    num_row_tiles,
    infinity: tl.constexpr,
    rows: tl.constexpr,  # bytes of `saved`, that is, eights of pairs
    columns: tl.constexpr,
):
    """Shift and sort of windows of two slots. Each thread holds the bits of its eight pairs."""
    sample, row_tile, channel_tile = _program(num_channel_tiles, num_row_tiles)
    octet = row_tile * rows + tl.arange(0, rows)[:, None]
    channel = channel_tile * columns + tl.arange(0, columns)[None, :]
    in_channels = channel < num_channels
    count = num_tokens
    if lengths is not None:
        count = tl.load(lengths + sample).to(tl.int32)
    shift = _shift_of(steps, channel, count, in_channels)
    values += sample * num_tokens * num_channels
    out += sample * num_tokens * num_channels
    swaps = octet * 0 + channel * 0
    for i in tl.static_range(8):
        slot = 16 * octet + 2 * i  # the first of the pair
        first_real = (slot < count) & in_channels
        both_real = (slot + 1 < count) & in_channels
        first = tl.load(values + _source(slot, shift, count) * num_channels + channel, mask=first_real, other=0)
        second = tl.load(values + _source(slot + 1, shift, count) * num_channels + channel, mask=both_real, other=0)
        first_key, second_key = _key(first, infinity), _key(second, infinity)
        if descending is not None:
            in_windows = (slot < num_tokens) & in_channels
            down = tl.load(descending + slot // 2 * descending_stride + channel, mask=in_windows, other=0).to(tl.int32)
            first_key ^= -down
            second_key ^= -down
        swap = (second_key < first_key) & both_real
        tl.store(
            out + slot * num_channels + channel,
            tl.where(swap, second, first),
            mask=(slot < num_tokens) & in_channels,
        )
        tl.store(
            out + (slot + 1) * num_channels + channel,
            tl.where(swap, first, second),
            mask=(slot + 1 < num_tokens) & in_channels,
        )
        swaps |= swap.to(tl.int32) << i
    if saved is not None:
        num_octets = tl.cdiv(num_tokens, 16)
        tl.store(
            saved + (sample * num_octets + octet) * num_channels + channel,
            swaps.to(tl.uint8),
            mask=(octet < num_octets) & in_channels,
        )


@triton.jit
def _complement(x, bit: tl.constexpr):
    """Reverses the order of the keys in rows whose number has this bit set."""
    rows: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    halves = tl.reshape(x, (rows >> (bit + 1), 2, columns << bit))
    return tl.reshape(halves ^ -tl.arange(0, 2)[None, :, None], (rows, columns))


@triton.jit
def _exchange(x, bit: tl.constexpr):
    """Orders every two rows that differ in this bit of their number: the smaller keys go to the row with bit 0."""
    rows: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    halves = tl.reshape(x, (rows >> (bit + 1), 2, columns << bit))
    low, high = tl.split(tl.permute(halves, (0, 2, 1)))
    pairs = tl.join(tl.minimum(low, high), tl.maximum(low, high))
    return tl.reshape(tl.permute(pairs, (0, 2, 1)), (rows, columns))


@triton.jit
def _reversed_bits(number, width: tl.constexpr):
    reverse = number * 0
    for bit in tl.static_range(width):
        reverse |= ((number >> bit) & 1) << (width - 1 - bit)
    return reverse


@triton.jit
def _sorted(x, width: tl.constexpr):
    """Bitonic sort of each column of 2^width rows; rank r ends in the row whose number is r with its bits reversed.

    `_exchange` is fast if both rows are in one thread; otherwise the compiler moves the keys through shared memory. The
    low bits of a rank are compared most often, but Triton keeps rows within a thread that differ in the high bits of
    their number. With reversed bits, the sm_90 code for 256 and 1024 rows of 16-bit values has half as many barriers.
    """
    for stage in tl.static_range(1, width + 1):
        if stage < width:
            x = _complement(x, width - 1 - stage)
        for step in tl.static_range(stage):
            x = _exchange(x, width - stage + step)
        if stage < width:
            x = _complement(x, width - 1 - stage)
    return x


@triton.jit(do_not_specialize=(*_VARYING, "size"))
def sort_windows(
    values,  # (B, N, C) bits
    out,  # (B, N, C) bits
    saved,  # (B, N, C) uint8 or int16: the place in its window, after the shift, that a slot's value had
    steps,
    lengths,
    descending,  # (windows, C) or (1, C) bool
    descending_stride,  # C or 0
    size,  # slots of a window
    num_tokens,
    num_channels,
    num_channel_tiles,
    num_row_tiles,
    infinity: tl.constexpr,
    width: tl.constexpr,  # 2^width is `size` or the next power of two
    rows: tl.constexpr,  # windows
    columns: tl.constexpr,
):
    """Shift and stable sort of `rows` windows of `columns` channels, each column packed as key and place."""
    sample, row_tile, channel_tile = _program(num_channel_tiles, num_row_tiles)
    place = _reversed_bits(tl.arange(0, 1 << width), width)[:, None]
    column = tl.arange(0, rows * columns)[None, :]
    window = row_tile * rows + column // columns
    channel = channel_tile * columns + column % columns
    slot = window * size + place
    in_channels = channel < num_channels
    inside = (place < size) & (slot < num_tokens) & in_channels
    count = num_tokens
    if lengths is not None:
        count = tl.load(lengths + sample).to(tl.int32)
    real = inside & (slot < count)
    shift = _shift_of(steps, channel, count, in_channels)
    values += sample * num_tokens * num_channels
    bits = tl.load(values + _source(slot, shift, count) * num_channels + channel, mask=real, other=0)
    key = _key(bits, infinity)
    if descending is not None:
        in_windows = (window * size < num_tokens) & in_channels
        down = tl.load(descending + window * descending_stride + channel, mask=in_windows, other=0).to(tl.int32)
        key ^= -down
    limit: tl.constexpr = (1 << (bits.dtype.primitive_bitwidth - 1)) - 1
    key = tl.where(real, key, limit)
    if bits.dtype.primitive_bitwidth == 16:
        packed = _sorted((key << 16) | place, width)
        key, came_from = packed >> 16, packed & 0xFFFF
    else:
        packed = _sorted((key.to(tl.int64) << 32) | place, width)
        key, came_from = (packed >> 32).to(tl.int32), (packed & 0xFFFF).to(tl.int32)
    if descending is not None:
        key ^= -down
    # A key gives the value except for the sign of a zero and the payload of NaN, which are read again.
    moved = tl.where(key < 0, -key | ~limit, key).to(bits.dtype)
    unclear = real & ((key == 0) | (key == limit - 1))
    row = _source(window * size + came_from, shift, count)
    again = tl.load(values + row * num_channels + channel, mask=unclear, other=0)
    moved = tl.where(unclear, again, tl.where(real, moved, 0))
    start = sample * num_tokens * num_channels
    tl.store(out + start + slot * num_channels + channel, moved, mask=inside)
    if saved is not None:
        tl.store(saved + start + slot * num_channels + channel, came_from.to(saved.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=(*_VARYING, "size"))
def unsort_windows(
    grad,  # (B, N, C) bits
    out,  # (B, N, C) bits
    saved,  # of sort_windows
    steps,
    lengths,
    size,
    num_tokens,
    num_channels,
    num_channel_tiles,
    num_row_tiles,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """Backward pass of sort_windows: the gradient of every slot goes to its source row, one per row."""
    sample, row_tile, channel_tile = _program(num_channel_tiles, num_row_tiles)
    slot = row_tile * rows + tl.arange(0, rows)[:, None]
    channel = channel_tile * columns + tl.arange(0, columns)[None, :]
    in_channels = channel < num_channels
    inside = (slot < num_tokens) & in_channels
    count = num_tokens
    if lengths is not None:
        count = tl.load(lengths + sample).to(tl.int32)
    real = inside & (slot < count)
    start = sample * num_tokens * num_channels
    moved = tl.load(grad + start + slot * num_channels + channel, mask=real, other=0)
    came_from = tl.load(saved + start + slot * num_channels + channel, mask=real, other=0).to(tl.int32)
    shift = _shift_of(steps, channel, count, in_channels)
    row = tl.where(real, _source(slot - slot % size + came_from, shift, count), slot)
    tl.store(out + start + row * num_channels + channel, moved, mask=inside)
