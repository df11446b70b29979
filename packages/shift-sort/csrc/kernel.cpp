// Shift and sort with channels in the lanes of vectors and a sorting network along the tokens.
//
// This file is compiled once per instruction set; KERNEL is the name of the result. Everything else is in an unnamed
// namespace, and no function of the standard library is instantiated, because the linker could otherwise keep a version
// with instructions that the machine lacks.
//
// A tile is a block of channels of one sample whose floats fill a cache line of 64 bytes in each token. Rows of the
// network have 64 bytes; keys with their slots take twice as many, in two planes. Floats are handled as the integers of
// their bits, in the order of torch.sort: -0.0 equals 0.0, all NaN are equal and above inf. Slots are numbered after
// the shift.

#include "shift_sort.h"

#include <cstring>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

#include "vectors.h"

constexpr int64_t kLeaf = 16;       // rows that are sorted in registers
constexpr int64_t kChunkRows = 64;  // slots that are shifted at a time, at least
constexpr int64_t kMostLanes = 32;  // channels of a tile

// Rows of a tile are far apart, which the hardware prefetcher cannot predict; the neighbouring tile comes next.
INLINE void prefetch_next_tile(const void* row) { __builtin_prefetch(static_cast<const char*>(row) + kRowBytes); }
constexpr int64_t kRowsAhead = 16;  // rows of one tile that are fetched in advance
INLINE void prefetch_next_tile(void* row) { __builtin_prefetch(static_cast<char*>(row) + kRowBytes, 1); }

// Channels of a tile.
template <class T>
constexpr int kLanes = kRowBytes / sizeof(T);

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

INLINE int64_t tokens(const ShiftSort& call, int64_t sample) {
    return call.lengths ? call.lengths[sample] : call.num_tokens;
}

// ---------------------------------------------------------------------------------------------------------------------
// Sorting networks on rows of a tile. Every comparator leaves the smaller element in the earlier row, so rows that are
// missing up to the next power of two act as largest elements, which never move.

// One column of vectors: elements that are single integers.
template <class T>
struct Single {
    using V = Vector<T, kVectorBytes / sizeof(T)>;
    V key;
    static INLINE Single load(const char* p, int64_t) { return {*reinterpret_cast<const V*>(p)}; }
    static INLINE Single largest() { return {V{} + Limits<T>::max}; }
    INLINE void store(char* p, int64_t) const { *reinterpret_cast<V*>(p) = key; }
    static INLINE void order(Single& a, Single& b) {
        const V low = b.key < a.key ? b.key : a.key;
        b.key = b.key < a.key ? a.key : b.key;
        a.key = low;
    }
    static constexpr int levels = kRegisterLevels;
};

// A key and, `plane` bytes further, a row that decides between equal keys.
struct Pair {
    using V = Vector<int64_t, kVectorBytes / 8>;
    V key, row;
    static INLINE Pair load(const char* p, int64_t plane) {
        return {*reinterpret_cast<const V*>(p), *reinterpret_cast<const V*>(p + plane)};
    }
    static INLINE Pair largest() { return {V{} + Limits<int64_t>::max, V{} + Limits<int64_t>::max}; }
    INLINE void store(char* p, int64_t plane) const {
        *reinterpret_cast<V*>(p) = key;
        *reinterpret_cast<V*>(p + plane) = row;
    }
    static INLINE void order(Pair& a, Pair& b) {
        const auto swap = (b.key < a.key) | ((b.key == a.key) & (b.row < a.row));
        const Pair low{swap ? b.key : a.key, swap ? b.row : a.row};
        b = {swap ? a.key : b.key, swap ? a.row : b.row};
        a = low;
    }
    static constexpr int levels = 3;
};

// Batcher's odd-even merge sort of `size` elements, as a list of comparators.
template <int size>
struct Batcher {
    int count = 0;
    int first[size * 4] = {}, second[size * 4] = {};
    constexpr Batcher() {
        for (int p = 1; p < size; p *= 2)
            for (int k = p; k >= 1; k /= 2)
                for (int j = k % p; j + k < size; j += 2 * k)
                    for (int i = j; i < j + k && i + k < size; ++i)
                        if (i / (2 * p) == (i + k) / (2 * p)) {
                            first[count] = i;
                            second[count++] = i + k;
                        }
    }
};
template <int size>
constexpr Batcher<size> batcher{};

template <class E, int size, int... i>
INLINE void order_all(E* r, std::integer_sequence<int, i...>) {
    (E::order(r[batcher<size>.first[i]], r[batcher<size>.second[i]]), ...);
}

template <class E, int size>
INLINE void sort_leaf(char* base, int64_t plane) {
    E r[size];
#pragma GCC unroll 16
    for (int j = 0; j < size; ++j) r[j] = E::load(base + j * kRowBytes, plane);
    order_all<E, size>(r, std::make_integer_sequence<int, batcher<size>.count>());
#pragma GCC unroll 16
    for (int j = 0; j < size; ++j) r[j].store(base + j * kRowBytes, plane);
}

// `levels` levels of a bitonic merge over `size` rows of which `rows` exist, in registers. With `flip` the first level
// compares row i with its mirror image, which joins two halves that are both sorted upwards.
template <class E, int levels, bool flip, bool whole>
void pass(char* base, int64_t plane, int64_t rows, int64_t size) {
    constexpr int count = 1 << levels, half = count / 2;
    const int64_t stride = size >> levels;
    for (int64_t offset = 0; offset < stride; ++offset) {
        const auto row = [&](int j) {
            return flip && j >= half ? size - 1 - offset - (j - half) * stride : offset + j * stride;
        };
        E r[count];
#pragma GCC unroll 16
        for (int j = 0; j < count; ++j)
            r[j] = whole || row(j) < rows ? E::load(base + row(j) * kRowBytes, plane) : E::largest();
#pragma GCC unroll 16
        for (int j = 0; j < half; ++j) E::order(r[j], r[j + half]);
#pragma GCC unroll 4
        for (int distance = half / 2; distance >= 1; distance /= 2) {
#pragma GCC unroll 16
            for (int j = 0; j < count; ++j) {
                if (j & distance) continue;
                if (flip && j >= half) {
                    E::order(r[j + distance], r[j]);  // mirrored rows run downwards
                } else {
                    E::order(r[j], r[j + distance]);
                }
            }
        }
#pragma GCC unroll 16
        for (int j = 0; j < count; ++j)
            if (whole || row(j) < rows) r[j].store(base + row(j) * kRowBytes, plane);
    }
}

template <class E, int levels, bool flip>
INLINE void pass(char* base, int64_t plane, int64_t rows, int64_t size) {
    if (rows >= size) {
        pass<E, levels, flip, true>(base, plane, rows, size);
    } else {
        pass<E, levels, flip, false>(base, plane, rows, size);
    }
}

// The levels of a merge below the first pass, block by block so that a block stays in the nearest cache.
template <class E>
void merge_blocks(char* base, int64_t plane, int64_t rows, int64_t block, int64_t size) {
    if (block == 1) return;
    for (int64_t start = 0; start < size && start < rows; start += block) {
        char* p = base + start * kRowBytes;
        pass<E, E::levels, false>(p, plane, rows - start, block);
        merge_blocks<E>(p, plane, rows - start, block >> E::levels, block);
    }
}

template <class E>
void sort_rows(char* base, int64_t plane, int64_t rows, int64_t size) {
    if (size == kLeaf) return sort_leaf<E, kLeaf>(base, plane);
    const int64_t half = size / 2;
    sort_rows<E>(base, plane, rows < half ? rows : half, half);
    if (rows <= half) return;
    sort_rows<E>(base + half * kRowBytes, plane, rows - half, half);
    const int first = (__builtin_ctzll(size) - 1) % E::levels + 1;  // so that all later passes are full
    switch (first) {
        case 1: pass<E, 1, true>(base, plane, rows, size); break;
        case 2: pass<E, 2, true>(base, plane, rows, size); break;
        case 3: pass<E, 3, true>(base, plane, rows, size); break;
        default: pass<E, E::levels, true>(base, plane, rows, size);
    }
    merge_blocks<E>(base, plane, rows, size >> first, size);
}

// Rows that a window of n slots takes in a tile: a power of two up to kLeaf, then multiples of kLeaf.
INLINE int64_t padded_rows(int64_t n) { return n <= 4 ? 4 : n <= 8 ? 8 : round_up(n, kLeaf); }

template <class E>
void sort_window(char* tile, int64_t plane, int64_t rows) {
    for (int column = 0; column < kRowBytes; column += kVectorBytes) {
        char* base = tile + column;
        if (rows == 4) {
            sort_leaf<E, 4>(base, plane);
        } else if (rows == 8) {
            sort_leaf<E, 8>(base, plane);
        } else {
            int64_t size = kLeaf;
            while (size < rows) size *= 2;
            sort_rows<E>(base, plane, rows, size);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The contents of a tile: keys in the order of torch.sort, with or without their source slots.

template <class T>
struct FloatBits {
    T infinity;

    // The largest integer is never a key. Sets `special` where the bits cannot be recovered from the key.
    template <class V>
    INLINE V key(V bits, V& special) const {
        const V magnitude = bits & Limits<T>::max, sign = bits >> (Limits<T>::bits - 1);
        const V nan = magnitude > infinity;
        special |= nan | (bits == Limits<T>::min);
        return nan ? V{} + T(Limits<T>::max - 1) : (magnitude ^ sign) - sign;
    }

    template <class V>
    static INLINE V bits(V key) {
        const V sign = key >> (Limits<T>::bits - 1);
        return ((key ^ sign) - sign) | (sign & Limits<T>::min);
    }
};

// Rows whose elements are in one or two planes, `plane` bytes apart.
template <class T, int lanes>
INLINE void store_planes(char* row, int64_t plane, const Row<T, lanes>& value) {
#pragma GCC unroll 8
    for (int i = 0; i < value.parts; ++i) {
        const int64_t offset = i * sizeof(value.part[0]);
        store(row + offset / kRowBytes * plane + offset % kRowBytes, value.part[i]);
    }
}

template <class R>
INLINE R load_planes(const char* row, int64_t plane) {
    R value;
#pragma GCC unroll 8
    for (int i = 0; i < R::parts; ++i) {
        const int64_t offset = i * sizeof(value.part[0]);
        value.part[i] = load<typename R::Part>(row + offset / kRowBytes * plane + offset % kRowBytes);
    }
    return value;
}

// Keys alone: half the work, for a result without saved order.
template <class T>
struct Values {
    using Raw = T;
    using Wide = T;
    using Element = Single<T>;
    static constexpr int sorted_planes = 1;
    static constexpr bool indexed = false;
    using R = Row<T, kLanes<T>>;
    static INLINE void put(char* row, int64_t, const R& key, T) { store_row(row, key); }
    static INLINE R key(const char* row, int64_t) { return load_row<R>(row); }
    static INLINE R slot(const char*, int64_t) { return {}; }
};

// Key and slot in one integer of twice the size, in two planes that are sorted one after the other.
template <class T, class P>
struct Packed {
    using Raw = T;
    using Wide = P;
    using Element = Single<P>;
    static constexpr int sorted_planes = 2, slot_bits = sizeof(P) * 4;
    static constexpr bool indexed = true;
    using R = Row<T, kLanes<T>>;
    using W = Row<P, kLanes<T>>;
    static INLINE void put(char* row, int64_t plane, const R& key, P slot) {
        store_planes(row, plane, convert<P>(key).map([&](auto part) { return (part << slot_bits) | slot; }));
    }
    static INLINE R key(const char* row, int64_t plane) {
        return convert<T>(load_planes<W>(row, plane).map([](auto part) { return part >> slot_bits; }));
    }
    static INLINE W slot(const char* row, int64_t plane) {
        return load_planes<W>(row, plane).map([](auto part) { return part & P((P(1) << slot_bits) - 1); });
    }
};

// Key and slot in separate planes, for keys of 64 bits; the second follows the first.
struct Paired {
    using Raw = int64_t;
    using Wide = int64_t;
    using Element = Pair;
    static constexpr int sorted_planes = 1;
    static constexpr bool indexed = true;
    using R = Row<int64_t, kLanes<int64_t>>;
    static INLINE void put(char* row, int64_t plane, const R& key, int64_t slot) {
        store_row(row, key);
        store_row(row + plane, key.map([&](auto part) { return decltype(part){} + slot; }));
    }
    static INLINE R key(const char* row, int64_t) { return load_row<R>(row); }
    static INLINE R slot(const char* row, int64_t plane) { return load_row<R>(row + plane); }
};

// ---------------------------------------------------------------------------------------------------------------------
// Memory of one thread: `column` and `chunk` for shifted channels, `tile` for the network, ranks of channel 0.

INLINE int64_t chunk_rows(int64_t group_size) {
    return group_size < kChunkRows ? group_size * (kChunkRows / group_size) : group_size;
}

struct Memory {
    char *column, *chunk, *tile;
    int32_t* ranks;
    int64_t plane;
    size_t bytes;

    Memory(const ShiftSort& call, char* start) {
        int64_t used = 0;
        const auto take = [&](int64_t size) {
            char* const here = start ? start + used : nullptr;
            used += round_up(size, kRowBytes);
            return here;
        };
        const int64_t window = call.group_size < kChunkRows ? kChunkRows : call.group_size;
        plane = padded_rows(call.group_size) * kRowBytes;
        column = take((call.num_tokens + 2 * kMostLanes) * kRowBytes);
        chunk = take((window + kMostLanes) * kRowBytes);
        tile = take(2 * plane);
        ranks = reinterpret_cast<int32_t*>(take(call.reference ? call.num_tokens * sizeof(int32_t) : 0));
        bytes = used;
    }
};

// ---------------------------------------------------------------------------------------------------------------------
// Shifts: a tile is transposed so that the tokens of a channel are contiguous, read from the start of each channel, and
// transposed back. That is several times faster than moving single floats.

// Transposes a square block of a matrix: from(i) is the address of row i, to(i) the address of column i.
template <class T, int size, class From, class To>
INLINE void transpose(From from, To to) {
    using V = Vector<T, size>;
    V rows[size], turned[size];
#pragma GCC unroll 32
    for (int i = 0; i < size; ++i) rows[i] = load<V>(from(i));
#pragma GCC unroll 5
    for (int round = 1; round < size; round *= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < size / 2; ++i) {
            turned[2 * i] = interleave<T, size>(rows[i], rows[i + size / 2], 0);
            turned[2 * i + 1] = interleave<T, size>(rows[i], rows[i + size / 2], 1);
        }
#pragma GCC unroll 32
        for (int i = 0; i < size; ++i) rows[i] = turned[i];
    }
#pragma GCC unroll 32
    for (int i = 0; i < size; ++i) store(to(i), rows[i]);
}

// The channels of one tile after a shift by `steps`, as rows of whole vectors.
template <class T, int lanes>
struct Column {
    static constexpr int block = kVectorBytes / sizeof(T) < lanes ? kVectorBytes / sizeof(T) : lanes;
    int64_t n;
    int64_t steps[lanes] = {};  // each below n
    bool uniform = true;        // all channels have the same step, so rows are read in place
    const T* source = nullptr;  // the rows that are read in place
    int64_t stride = lanes;
    T* column;  // else: the tokens of each channel, `pitch` apart, with the first tokens repeated after the last
    int64_t pitch;
    T* chunk;
    int64_t chunk_start = 0;

    // `inverse` undoes the shift.
    Column(const ShiftSort& call, int64_t channel, int live, int64_t n, const Memory& memory, bool inverse)
        : n(n),
          column(reinterpret_cast<T*>(memory.column)),
          pitch(round_up(n, block) + block),
          chunk(reinterpret_cast<T*>(memory.chunk)) {
        if (!call.steps) return;
        for (int l = 0; l < live; ++l) {
            const int64_t given = call.steps[channel + l], step = given < n ? given : given % n;
            steps[l] = inverse && step ? n - step : step;
            uniform &= steps[l] == steps[0];
        }
        for (int l = live; l < lanes; ++l) steps[l] = steps[0];
    }

    // Takes all tokens from rows of which `live` channels exist.
    INLINE void read(const T* rows, int64_t row_stride, int live) {
        source = rows;
        stride = row_stride;
        if (uniform && live == lanes) return;
        if (uniform) {
            for (int64_t i = 0; i < n; ++i)
                store_row(column + i * lanes, load_row<Row<T, lanes>>(rows + i * row_stride, live * sizeof(T)));
            source = column;
            stride = lanes;
            return;
        }
        for (int64_t start = 0; start < n; start += kChunkRows) {
            const int64_t end = n < start + kChunkRows ? n : start + kChunkRows;
            const T* from = rows + start * row_stride;
            if (live == lanes) {
                add(from, row_stride, start, end);
            } else {
                for (int64_t i = 0; i < end - start; ++i)
                    store_row(chunk + i * lanes, load_row<Row<T, lanes>>(from + i * row_stride, live * sizeof(T)));
                add(chunk, lanes, start, end);
            }
        }
        close();
    }

    // Takes the tokens from..to, `from` a multiple of kChunkRows, from whole rows.
    INLINE void add(const T* rows, int64_t row_stride, int64_t from, int64_t to) {
        T rest[block * lanes] = {};
        for (int64_t i = from; i < to; i += block, rows += block * row_stride) {
            if (i + block > to) {
                for (int64_t j = 0; j < to - i; ++j) memcpy(rest + j * lanes, rows + j * row_stride, sizeof(T) * lanes);
                rows = rest;
                row_stride = lanes;
            }
            for (int part = 0; part < lanes; part += block)
                transpose<T, block>(
                    [&](int j) {
                        prefetch_next_tile(rows + j * row_stride);
                        return rows + j * row_stride + part;
                    },
                    [&](int l) { return column + (part + l) * pitch + i; });
        }
    }

    // After the last token.
    INLINE void close() {
        for (int l = 0; l < lanes; ++l) {
            T* tokens = column + l * pitch;
            if (n >= block) {
                store(tokens + n, load<Vector<T, block>>(tokens));
            } else {
                for (int i = 0; i < block; ++i) tokens[n + i] = tokens[i % n];
            }
        }
    }

    // Makes slots from..to readable.
    INLINE void prepare(int64_t from, int64_t to) {
        if (uniform) return;
        chunk_start = from;
        int64_t token[lanes];
        for (int l = 0; l < lanes; ++l) token[l] = from - steps[l] + (from < steps[l] ? n : 0);
        for (int64_t i = from; i < to; i += block) {
            for (int part = 0; part < lanes; part += block)
                transpose<T, block>([&](int l) { return column + (part + l) * pitch + token[part + l]; },
                                    [&](int j) { return chunk + (i - from + j) * lanes + part; });
            for (int l = 0; l < lanes; ++l) {
                token[l] += block;
                if (n >= block) {
                    token[l] -= token[l] >= n ? n : 0;
                } else {
                    token[l] %= n;
                }
            }
        }
    }

    INLINE const T* row(int64_t slot) const {
        if (!uniform) return chunk + (slot - chunk_start) * lanes;
        const int64_t token = slot - steps[0];
        return source + (token < 0 ? token + n : token) * stride;
    }
};

// All bits set in the channels of a window that are sorted downwards.
template <class T, int lanes>
INLINE Row<T, lanes> directions(const ShiftSort& call, int64_t window, int64_t channel, int live) {
    Row<T, lanes> down{};
    if (!call.descending) return down;
    const uint8_t* row = call.descending + (call.direction_rows > 1 ? window * call.num_channels : 0) + channel;
    for (int l = 0; l < live; ++l) down[l] = -T(row[l]);
    return down;
}

template <class T>
INLINE void clear_rows(T* rows, int64_t count, int64_t stride, int live) {
    for (int64_t i = 0; i < count; ++i) memset(rows + i * stride, 0, live * sizeof(T));
}

// ---------------------------------------------------------------------------------------------------------------------
// Forward

template <class T>
INLINE int live_lanes(const ShiftSort& call, int64_t channel, int lanes) {
    const int64_t left = call.num_channels - channel;
    return left < lanes ? int(left) : lanes;
}

template <class T>
void shift_tile(const ShiftSort& call, int64_t sample, int64_t channel, const Memory& memory, bool inverse) {
    constexpr int lanes = kLanes<T>;
    const int live = live_lanes<T>(call, channel, lanes);
    const int64_t n = tokens(call, sample), stride = call.num_channels;
    const int64_t offset = sample * call.num_tokens * stride + channel;
    Column<T, lanes> column(call, channel, live, n, memory, inverse);
    column.read(static_cast<const T*>(call.in) + offset, stride, live);
    T* out = static_cast<T*>(call.out) + offset;
    for (int64_t start = 0; start < n; start += kChunkRows) {
        const int64_t end = n < start + kChunkRows ? n : start + kChunkRows;
        column.prepare(start, end);
        for (int64_t i = start; i < end; ++i)
            store_row(out + i * stride, load_row<Row<T, lanes>>(column.row(i)), live * sizeof(T));
    }
    clear_rows(out + n * stride, call.num_tokens - n, stride, live);
}

// Windows of two: compare and swap, one bit saved for each.
template <class T>
void pair_tile(const ShiftSort& call, const FloatBits<T>& floats, int64_t sample, int64_t channel,
               const Memory& memory) {
    constexpr int lanes = kLanes<T>;
    using R = Row<T, lanes>;
    using V = typename R::Part;
    const int live = live_lanes<T>(call, channel, lanes);
    const int64_t n = tokens(call, sample), stride = call.num_channels;
    const int64_t offset = sample * call.num_tokens * stride + channel;
    const int64_t bit_stride = round_up(stride, 8) / 8, bit_bytes = round_up(live, 8) / 8;
    Column<T, lanes> column(call, channel, live, n, memory, false);
    column.read(static_cast<const T*>(call.in) + offset, stride, live);
    T* out = static_cast<T*>(call.out) + offset;
    uint8_t* bits = call.saved ? static_cast<uint8_t*>(call.saved) +
                                     sample * (call.num_tokens / 2) * bit_stride + channel / 8
                               : nullptr;
    R down = directions<T, lanes>(call, 0, channel, live);
    for (int64_t start = 0; start < n; start += kChunkRows) {
        const int64_t end = n < start + kChunkRows ? n : start + kChunkRows;
        column.prepare(start, end);
        for (int64_t i = start; i + 1 < end; i += 2) {
            const R a = load_row<R>(column.row(i)), b = load_row<R>(column.row(i + 1));
            R swaps, low, high;
            if (call.direction_rows > 1) down = directions<T, lanes>(call, i / 2, channel, live);
#pragma GCC unroll 4
            for (int p = 0; p < R::parts; ++p) {
                V special{};
                V swap = (floats.key(b.part[p], special) ^ down.part[p]) < (floats.key(a.part[p], special) ^ down.part[p]);
                if (call.reference) swap ^= V{} - T(memory.ranks[i]);  // 1 where channel 0 is swapped
                swaps.part[p] = swap;
                low.part[p] = swap ? b.part[p] : a.part[p];
                high.part[p] = swap ? a.part[p] : b.part[p];
            }
            prefetch_next_tile(column.row(i));
            prefetch_next_tile(column.row(i + 1));
            prefetch_next_tile(out + i * stride);
            prefetch_next_tile(out + (i + 1) * stride);
            store_row(out + i * stride, low, live * sizeof(T));
            store_row(out + (i + 1) * stride, high, live * sizeof(T));
            if (bits) {
                const uint32_t mask = to_bits(swaps);
                if (live == lanes) {
                    memcpy(bits + i / 2 * bit_stride, &mask, lanes / 8);
                } else {
                    memcpy(bits + i / 2 * bit_stride, &mask, bit_bytes);
                }
            }
        }
        if (end % 2) store_row(out + (end - 1) * stride, load_row<R>(column.row(end - 1)), live * sizeof(T));
    }
    clear_rows(out + n * stride, call.num_tokens - n, stride, live);
    if (bits) clear_rows(bits + n / 2 * bit_stride, call.num_tokens / 2 - n / 2, bit_stride, int(bit_bytes));
}

// Sorts every window of a tile, for the result and the saved order, or only to store the ranks of channel 0.
// Returns false if a float was found whose bits the tile does not hold and `How` cannot look up.
template <class How>
bool sort_tile(const ShiftSort& call, const FloatBits<typename How::Raw>& floats, int64_t sample, int64_t channel,
               const Memory& memory, bool only_ranks) {
    using T = typename How::Raw;
    using P = typename How::Wide;
    constexpr int lanes = kLanes<T>;
    using R = Row<T, lanes>;
    using V = typename R::Part;
    using W = Row<P, lanes>;
    const int live = live_lanes<T>(call, channel, lanes);
    const int64_t n = tokens(call, sample), stride = call.num_channels, size = call.group_size, plane = memory.plane;
    const int64_t offset = sample * call.num_tokens * stride + channel;
    Column<T, lanes> column(call, channel, live, n, memory, false);
    column.read(static_cast<const T*>(call.in) + offset, stride, live);
    T* out = static_cast<T*>(call.out) + offset;
    char* saved = call.saved ? static_cast<char*>(call.saved) + offset * call.saved_bytes : nullptr;
    W steps;
    for (int l = 0; l < lanes; ++l) steps[l] = P(column.steps[l]);
    R down = directions<T, lanes>(call, 0, channel, live);
    const int64_t chunk = chunk_rows(size);
    for (int64_t start = 0; start < n; start += size) {
        const int64_t count = n - start < size ? n - start : size, rows = padded_rows(count);
        if (start % chunk == 0) column.prepare(start, n - start < chunk ? n : start + chunk);
        if (call.direction_rows > 1) down = directions<T, lanes>(call, start / size, channel, live);
        V special{};
        for (int64_t j = 0; j < count; ++j) {
            R key = load_row<R>(column.row(start + j));
            if (column.uniform) __builtin_prefetch(column.row(start + j) + kRowsAhead * column.stride);
#pragma GCC unroll 4
            for (int p = 0; p < R::parts; ++p) key.part[p] = floats.key(key.part[p], special) ^ down.part[p];
            How::put(memory.tile + j * kRowBytes, plane, key, P(j));
        }
        const auto largest = Row<P, kLanes<P>>{}.map([](auto part) { return part + Limits<P>::max; });
        for (int64_t j = count; j < rows; ++j) {
            store_row(memory.tile + j * kRowBytes, largest);
            store_row(memory.tile + j * kRowBytes + plane, largest);
        }
        const bool look_up = any(special);
        if (look_up && !How::indexed) return false;
        for (int i = 0; i < How::sorted_planes; ++i)
            sort_window<typename How::Element>(memory.tile + i * plane, plane, rows);
        if (only_ranks) {
            for (int64_t j = 0; j < count; ++j)
                memory.ranks[start + How::slot(memory.tile + j * kRowBytes, plane)[0]] = int32_t(j);
            continue;
        }
        for (int64_t j = 0; j < count; ++j) {
            const char* row = memory.tile + (call.reference ? memory.ranks[start + j] : j) * kRowBytes;
            const W slot = How::slot(row, plane);
            R bits = How::key(row, plane);
#pragma GCC unroll 4
            for (int p = 0; p < R::parts; ++p) bits.part[p] = floats.bits(bits.part[p] ^ down.part[p]);
            if (look_up) {
                alignas(R) T exact[lanes];
                alignas(R) P slots[lanes];
                store_row(slots, slot);
                for (int l = 0; l < lanes; ++l) exact[l] = column.row(start + slots[l])[l];
                bits = load_row<R>(exact);
            }
            store_row(out + (start + j) * stride, bits, live * sizeof(T));
            __builtin_prefetch(out + (start + j + kRowsAhead) * stride, 1);
            if (!How::indexed || !saved) continue;
            char* to = saved + (start + j) * stride * call.saved_bytes;
            __builtin_prefetch(to + kRowsAhead * stride * call.saved_bytes, 1);
            W token;
#pragma GCC unroll 8
            for (int p = 0; p < W::parts; ++p) {
                token.part[p] = slot.part[p] + P(start) - steps.part[p];
                token.part[p] += (token.part[p] < 0) & P(n);
            }
            if (call.saved_bytes == 1) {
                store_row(to, convert<uint8_t>(slot), live);
            } else if (call.saved_bytes == 2) {
                store_row(to, convert<int16_t>(token), live * 2);
            } else {
                store_row(to, convert<int32_t>(token), live * 4);
            }
        }
    }
    if (only_ranks) return true;
    clear_rows(out + n * stride, call.num_tokens - n, stride, live);
    const int64_t bytes = call.saved_bytes;
    if (saved) clear_rows(saved + n * stride * bytes, call.num_tokens - n, stride * bytes, int(live * bytes));
    return true;
}

// Sorting with slots, by size of float. For floats of 16 bits a slot has 16 bits as well.
template <class T>
void sort_tile_indexed(const ShiftSort& call, const FloatBits<T>& floats, int64_t sample, int64_t channel,
                       const Memory& memory, bool only_ranks) {
    if constexpr (sizeof(T) == 8) {
        sort_tile<Paired>(call, floats, sample, channel, memory, only_ranks);
    } else if constexpr (sizeof(T) == 4) {
        sort_tile<Packed<T, int64_t>>(call, floats, sample, channel, memory, only_ranks);
    } else {
        sort_tile<Packed<T, int32_t>>(call, floats, sample, channel, memory, only_ranks);
    }
}

INLINE int float_bytes(const ShiftSort& call) { return call.dtype == 0 ? 8 : call.dtype == 1 ? 4 : 2; }

template <class T>
void forward_tile(const ShiftSort& call, const FloatBits<T>& floats, int64_t sample, int64_t channel,
                  const Memory& memory) {
    if (call.group_size == 1) return shift_tile<T>(call, sample, channel, memory, false);
    if (call.group_size == 2) return pair_tile<T>(call, floats, sample, channel, memory);
    if constexpr (sizeof(T) > 2) {
        if (!call.saved && sort_tile<Values<T>>(call, floats, sample, channel, memory, false)) return;
    }
    sort_tile_indexed<T>(call, floats, sample, channel, memory, false);
}

template <class T>
void forward_all(const ShiftSort& call, T infinity, int64_t begin, int64_t end, char* workspace) {
    const FloatBits<T> floats{infinity};
    const Memory memory(call, workspace);
    constexpr int64_t lanes = kLanes<T>;
    const int64_t tiles = (call.num_channels + lanes - 1) / lanes;
    int64_t ranked = -1;  // the sample whose ranks are in memory
    for (int64_t t = begin; t < end; ++t) {
        const int64_t sample = t / tiles;
        if (call.reference && call.group_size > 1 && sample != ranked) {
            sort_tile_indexed<T>(call, floats, sample, 0, memory, true);
            ranked = sample;
        }
        forward_tile<T>(call, floats, sample, t % tiles * lanes, memory);
    }
}

void forward(const ShiftSort& call, int64_t begin, int64_t end, char* workspace) {
    switch (call.dtype) {
        case 0: return forward_all<int64_t>(call, 0x7ff0000000000000, begin, end, workspace);
        case 1: return forward_all<int32_t>(call, 0x7f800000, begin, end, workspace);
        case 2: return forward_all<int16_t>(call, 0x7c00, begin, end, workspace);
        default: return forward_all<int16_t>(call, 0x7f80, begin, end, workspace);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Backward

template <class T>
void unswap_tile(const ShiftSort& call, int64_t sample, int64_t channel, const Memory& memory) {
    constexpr int lanes = kLanes<T>;
    using R = Row<T, lanes>;
    const int live = live_lanes<T>(call, channel, lanes);
    const int64_t n = tokens(call, sample), stride = call.num_channels;
    const int64_t offset = sample * call.num_tokens * stride + channel;
    const int64_t bit_stride = round_up(stride, 8) / 8, bit_bytes = round_up(live, 8) / 8;
    const T* in = static_cast<const T*>(call.in) + offset;
    T* out = static_cast<T*>(call.out) + offset;
    const uint8_t* bits =
        static_cast<const uint8_t*>(call.saved) + sample * (call.num_tokens / 2) * bit_stride + channel / 8;
    Column<T, lanes> column(call, channel, live, n, memory, true);
    T* rows = column.uniform ? column.column : column.chunk;
    for (int64_t start = 0; start < n; start += kChunkRows) {
        const int64_t end = n < start + kChunkRows ? n : start + kChunkRows;
        T* slots = rows + (column.uniform ? start * lanes : 0);
        for (int64_t i = start; i + 1 < end; i += 2, slots += 2 * lanes) {
            uint32_t mask = 0;
            if (live == lanes) {
                memcpy(&mask, bits + i / 2 * bit_stride, lanes / 8);
            } else {
                memcpy(&mask, bits + i / 2 * bit_stride, bit_bytes);
            }
            const R a = load_row<R>(in + i * stride, live * sizeof(T));
            const R b = load_row<R>(in + (i + 1) * stride, live * sizeof(T));
            prefetch_next_tile(in + i * stride);
            prefetch_next_tile(in + (i + 1) * stride);
            const R swap = from_bits<T, lanes>(mask);
            R first, second;
#pragma GCC unroll 4
            for (int p = 0; p < R::parts; ++p) {
                first.part[p] = swap.part[p] ? b.part[p] : a.part[p];
                second.part[p] = swap.part[p] ? a.part[p] : b.part[p];
            }
            store_row(slots, first);
            store_row(slots + lanes, second);
        }
        if (end % 2) store_row(slots, load_row<R>(in + (end - 1) * stride, live * sizeof(T)));
        if (!column.uniform) column.add(rows, lanes, start, end);
    }
    if (column.uniform) {
        column.source = rows;
    } else {
        column.close();
    }
    for (int64_t start = 0; start < n; start += kChunkRows) {
        const int64_t end = n < start + kChunkRows ? n : start + kChunkRows;
        column.prepare(start, end);
        for (int64_t i = start; i < end; ++i) {
            prefetch_next_tile(out + i * stride);
            store_row(out + i * stride, load_row<R>(column.row(i)), live * sizeof(T));
        }
    }
    clear_rows(out + n * stride, call.num_tokens - n, stride, live);
}

// `I`: type of the saved index: bytes are slots in the window, wider types are tokens.
template <class T, class I>
void scatter_tile(const ShiftSort& call, int64_t sample, int64_t channel, const Memory& memory) {
    constexpr int lanes = kLanes<T>;
    using R = Row<T, lanes>;
    using Tokens = Row<int32_t, lanes>;
    const int live = live_lanes<T>(call, channel, lanes);
    const int64_t n = tokens(call, sample), stride = call.num_channels, size = call.group_size;
    const int64_t offset = sample * call.num_tokens * stride + channel;
    const T* in = static_cast<const T*>(call.in) + offset;
    T* out = static_cast<T*>(call.out) + offset;
    const I* saved = static_cast<const I*>(call.saved) + offset;
    T* column = reinterpret_cast<T*>(memory.column);
    Tokens steps{};
    if (call.steps && sizeof(I) == 1)
        for (int l = 0; l < live; ++l) steps[l] = int32_t(call.steps[channel + l] % n);
    for (int64_t start = 0; start < n; start += size) {
        const int64_t end = n - start < size ? n : start + size;
        for (int64_t i = start; i < end; ++i) {
            Tokens token = convert<int32_t>(load_row<Row<I, lanes>>(saved + i * stride, live * sizeof(I)));
            if constexpr (sizeof(I) == 1) {
#pragma GCC unroll 4
                for (int p = 0; p < Tokens::parts; ++p) {
                    auto& part = token.part[p];
                    part += int32_t(start) - steps.part[p];
                    part += (part >> 31) & int32_t(n);
                }
            }
            const T* from = in + i * stride;
            __builtin_prefetch(from + kRowsAhead * stride);
            __builtin_prefetch(saved + (i + kRowsAhead) * stride);
            if (live == lanes) {
                for (int l = 0; l < lanes; ++l) column[int64_t(token[l]) * lanes + l] = from[l];
            } else {
                for (int l = 0; l < live; ++l) column[int64_t(token[l]) * lanes + l] = from[l];
            }
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        __builtin_prefetch(out + (i + kRowsAhead) * stride, 1);
        store_row(out + i * stride, load_row<R>(column + i * lanes), live * sizeof(T));
    }
    clear_rows(out + n * stride, call.num_tokens - n, stride, live);
}

template <class T>
void backward_all(const ShiftSort& call, int64_t begin, int64_t end, char* workspace) {
    const Memory memory(call, workspace);
    const int64_t tiles = (call.num_channels + kLanes<T> - 1) / kLanes<T>;
    for (int64_t t = begin; t < end; ++t) {
        const int64_t sample = t / tiles, channel = t % tiles * kLanes<T>;
        if (call.group_size == 1) {
            shift_tile<T>(call, sample, channel, memory, true);
        } else if (call.saved_bytes == 0) {
            unswap_tile<T>(call, sample, channel, memory);
        } else if (call.saved_bytes == 1) {
            scatter_tile<T, uint8_t>(call, sample, channel, memory);
        } else if (call.saved_bytes == 2) {
            scatter_tile<T, int16_t>(call, sample, channel, memory);
        } else {
            scatter_tile<T, int32_t>(call, sample, channel, memory);
        }
    }
}

void backward(const ShiftSort& call, int64_t begin, int64_t end, char* workspace) {
    switch (float_bytes(call)) {
        case 8: return backward_all<int64_t>(call, begin, end, workspace);
        case 4: return backward_all<int32_t>(call, begin, end, workspace);
        default: return backward_all<int16_t>(call, begin, end, workspace);
    }
}

int64_t tiles(const ShiftSort& call) {
    const int64_t lanes = kRowBytes / float_bytes(call);
    return call.num_samples * ((call.num_channels + lanes - 1) / lanes);
}
size_t workspace_bytes(const ShiftSort& call) { return Memory(call, nullptr).bytes; }

}  // namespace

extern const Kernel KERNEL;
const Kernel KERNEL = {tiles, workspace_bytes, forward, backward};
