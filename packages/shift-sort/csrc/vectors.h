// Vectors of the machine, and rows of a tile made of them. kernel.cpp, which is compiled once per instruction set,
// includes this file inside its unnamed namespace, after the headers of the standard library.
#pragma once

#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRegisterLevels = 4;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kRegisterLevels = 3;
#else
constexpr int kVectorBytes = 16, kRegisterLevels = 3;  // SSE2, NEON
#endif
constexpr int kRowBytes = 64;

template <class T, int lanes>
struct VectorOf {
    typedef T type __attribute__((vector_size(lanes * sizeof(T))));
};
template <class T, int lanes>
using Vector = typename VectorOf<T, lanes>::type;

template <class T>
struct Limits {
    static constexpr int bits = sizeof(T) * 8;
    static constexpr T max = T((uint64_t(1) << (bits - 1)) - 1), min = T(-max - 1);
};

template <class V>
INLINE V load(const void* p) {
    V v;
    memcpy(&v, p, sizeof(V));
    return v;
}

template <class V>
INLINE void store(void* p, const V& v) {
    memcpy(p, &v, sizeof(V));
}

// The bits of all 8-byte words of a vector.
template <class V>
INLINE uint64_t any(V v) {
    Vector<uint64_t, sizeof(V) / 8> words;
    memcpy(&words, &v, sizeof(V));
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof(V) / 8; ++i) all |= words[i];
    return all;
}

// `lanes` elements in as many vectors as they take. GCC compiles comparisons and choices in vectors that are wider than
// the machine's lane by lane, so they are done on the parts of a row.
template <class T, int lanes>
struct Row {
    static constexpr int bytes = lanes * sizeof(T), parts = bytes < kVectorBytes ? 1 : bytes / kVectorBytes;
    static constexpr int width = lanes / parts;
    using Part = Vector<T, width>;
    Part part[parts];

    INLINE T& operator[](int lane) { return reinterpret_cast<T*>(part)[lane]; }
    INLINE T operator[](int lane) const { return reinterpret_cast<const T*>(part)[lane]; }

    template <class F>
    INLINE Row map(F function) const {
        Row row;
#pragma GCC unroll 8
        for (int p = 0; p < parts; ++p) row.part[p] = function(part[p]);
        return row;
    }
};

// The first `bytes` bytes of a row; the others are 0. A row is moved part by part, because GCC moves wider objects in
// smaller pieces, and reading what was just written in pieces is slow.
template <class R>
INLINE R load_row(const void* p, int64_t bytes = R::bytes) {
    R row;
    if (bytes == R::bytes) {
#pragma GCC unroll 8
        for (int i = 0; i < R::parts; ++i)
            row.part[i] = load<typename R::Part>(static_cast<const char*>(p) + i * sizeof(row.part[0]));
        return row;
    }
    R some{};
    memcpy(&some, p, bytes);
    return some;
}

template <class T, int lanes>
INLINE void store_row(void* p, const Row<T, lanes>& row, int64_t bytes = Row<T, lanes>::bytes) {
    if (bytes == Row<T, lanes>::bytes) {
#pragma GCC unroll 8
        for (int i = 0; i < row.parts; ++i) store(static_cast<char*>(p) + i * sizeof(row.part[0]), row.part[i]);
    } else {
        const Row<T, lanes> copy = row;
        memcpy(p, &copy, bytes);
    }
}

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype((a) < (b)){__VA_ARGS__})
#endif

template <class V, int... i>
INLINE V interleave(V a, V b, std::integer_sequence<int, i...>, int half) {
    constexpr int n = sizeof...(i);
    return half ? SHUFFLE(a, b, (n / 2 + i / 2 + i % 2 * n)...) : SHUFFLE(a, b, (i / 2 + i % 2 * n)...);
}

// The first or the second half of the elements of a and b in turns.
template <class T, int lanes>
INLINE Vector<T, lanes> interleave(Vector<T, lanes> a, Vector<T, lanes> b, int half) {
    return interleave(a, b, std::make_integer_sequence<int, lanes>(), half);
}

template <class V, int... i>
INLINE V even_elements(V a, V b, std::integer_sequence<int, i...>) {
    return SHUFFLE(a, b, (2 * i)...);
}

template <int bytes>
struct IntegerOf;
template <>
struct IntegerOf<1> {
    using type = int8_t;
};
template <>
struct IntegerOf<2> {
    using type = int16_t;
};
template <>
struct IntegerOf<4> {
    using type = int32_t;
};
template <>
struct IntegerOf<8> {
    using type = int64_t;
};

// Elements of another width, in steps of a factor of two where a row has several parts. Numbers that do not fit are cut.
template <class To, class T, int lanes>
INLINE Row<To, lanes> convert(const Row<T, lanes>& row) {
    using From = Row<T, lanes>;
    if constexpr (sizeof(To) == sizeof(T)) {
        return load_row<Row<To, lanes>>(&row);
    } else if constexpr (From::parts == 1 && Row<To, lanes>::parts == 1) {
        return {__builtin_convertvector(row.part[0], typename Row<To, lanes>::Part)};
    } else if constexpr (sizeof(To) < sizeof(T)) {
        using Half = typename IntegerOf<sizeof(T) / 2>::type;
        using Halves = Vector<Half, From::width * 2>;
        Row<Half, lanes> half;
#pragma GCC unroll 8
        for (int p = 0; p < From::parts; p += 2)
            half.part[p / 2] = even_elements((Halves)row.part[p], (Halves)row.part[p + 1],
                                             std::make_integer_sequence<int, From::width * 2>());
        return convert<To>(half);
    } else {
        using Double = typename IntegerOf<sizeof(T) * 2>::type;
        using Wide = Row<Double, lanes>;
        Wide wide;
        if constexpr (Wide::parts == 1) {
            wide.part[0] = __builtin_convertvector(row.part[0], typename Wide::Part);
        } else {
#pragma GCC unroll 8
            for (int p = 0; p < Wide::parts; ++p) {
                const auto part = row.part[p / 2];
                const auto above = T(-1) < T(0) ? part >> (int(sizeof(T)) * 8 - 1) : part ^ part;
                wide.part[p] = (typename Wide::Part)interleave<T, From::width>(part, above, p % 2);
            }
        }
        return convert<To>(wide);
    }
}

// Element l of a part is bit `first` + l.
template <class R, class T>
INLINE typename R::Part lane_bits(int first) {
    typename R::Part bits;
    for (int l = 0; l < R::width; ++l) bits[l] = T(uint64_t(1) << (first + l));
    return bits;
}

// One bit per lane of a mask, lane 0 lowest.
template <class T, int lanes>
INLINE uint32_t to_bits(const Row<T, lanes>& mask) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 2) return _mm512_movepi16_mask(reinterpret_cast<__m512i>(mask.part[0]));
    if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask.part[0]));
    if constexpr (sizeof(T) == 8) return _mm512_movepi64_mask(reinterpret_cast<__m512i>(mask.part[0]));
#else
    using R = Row<T, lanes>;
    constexpr int word = lanes < Limits<T>::bits ? lanes : Limits<T>::bits;  // lanes whose bits one element holds
    uint32_t all = 0;
#pragma GCC unroll 2
    for (int first = 0; first < lanes; first += word) {
        typename R::Part sum{};
#pragma GCC unroll 8
        for (int lane = first; lane < first + word; lane += R::width)
            sum |= mask.part[lane / R::width] & lane_bits<R, T>(lane - first);
        uint64_t bits = any(sum);
        if (sizeof(T) <= 4) bits |= bits >> 32;
        if (sizeof(T) <= 2) bits |= bits >> 16;
        all |= uint32_t(bits & ((uint64_t(1) << word) - 1)) << first;
    }
    return all;
#endif
}

template <class T, int lanes>
INLINE Row<T, lanes> from_bits(uint32_t bits) {
    Row<T, lanes> mask;
#if defined(__AVX512F__)
    using Part = typename Row<T, lanes>::Part;
    if constexpr (sizeof(T) == 2) mask.part[0] = reinterpret_cast<Part>(_mm512_movm_epi16(bits));
    if constexpr (sizeof(T) == 4) mask.part[0] = reinterpret_cast<Part>(_mm512_movm_epi32(__mmask16(bits)));
    if constexpr (sizeof(T) == 8) mask.part[0] = reinterpret_cast<Part>(_mm512_movm_epi64(__mmask8(bits)));
#else
    using R = Row<T, lanes>;
#pragma GCC unroll 8
    for (int p = 0; p < R::parts; ++p) {
        const int first = p * R::width, shift = first / Limits<T>::bits * Limits<T>::bits;
        mask.part[p] = ((typename R::Part{} + T(bits >> shift)) & lane_bits<R, T>(first - shift)) != 0;
    }
#endif
    return mask;
}
