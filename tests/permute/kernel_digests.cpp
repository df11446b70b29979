// Runs the kernel of csrc/ on generated inputs and prints one line for each case: its name, and digests of the bits of
// the result, of what is saved for the backward pass, and of the gradient. Builds for two machines must print the same.
// The argument is the instruction set, numbered as in csrc/dispatch.cpp.

#include "../../packages/shift-sort/csrc/shift_sort.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" int shift_sort_has(int isa);
extern "C" int shift_sort_forward(const ShiftSort* call, int isa, int threads);
extern "C" int shift_sort_backward(const ShiftSort* call, int isa, int threads);

namespace {

using Bytes = std::vector<unsigned char>;

uint64_t state = 1;

// SplitMix64, so that every machine draws the same numbers.
uint64_t draw() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

struct Float {
    const char* name;
    int bytes, fraction_bits;
};
constexpr Float kFloats[] = {{"float64", 8, 52}, {"float32", 4, 23}, {"float16", 2, 10}, {"bfloat16", 2, 7}};

// The bits of one element. `kind` 0: any bits, so NaN with payloads and denormals as well; 1: one of nine values, so
// many ties; 2: signed zeros, infinities, NaN of both signs and ones.
uint64_t element(const Float& type, int kind) {
    const int bits = type.bytes * 8;
    const uint64_t sign = uint64_t(draw() & 1) << (bits - 1);
    const uint64_t infinity = ((uint64_t(1) << (bits - 1 - type.fraction_bits)) - 1) << type.fraction_bits;
    const uint64_t one = (infinity >> 1) & ~((uint64_t(1) << type.fraction_bits) - 1);
    if (kind == 0) return draw() >> (64 - bits);
    if (kind == 1) return sign | (draw() % 5 * (one / 4));
    const uint64_t choices[] = {0, 0, one, infinity, infinity | 1, infinity | draw() % 8, 1};
    return sign | choices[draw() % 7];
}

Bytes floats(const Float& type, int64_t count, int kind) {
    Bytes bytes(count * type.bytes);
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t bits = element(type, kind);
        memcpy(&bytes[i * type.bytes], &bits, type.bytes);  // both machines are little-endian
    }
    return bytes;
}

uint64_t digest(const Bytes& bytes) {  // FNV-1a
    uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
    return hash;
}

struct Options {
    int dtype, kind, steps, order;  // steps 0 none, 1 equal, 2 any; order 0 up, 1 by channel, 2 by channel and window
    bool ragged, reference, save;
    int saved_bytes;
};

void print_case(int isa, int64_t samples, int64_t tokens, int64_t channels, int64_t group, const Options& options) {
    const Float& type = kFloats[options.dtype];
    const int64_t count = samples * tokens * channels, windows = (tokens + group - 1) / group;
    const Bytes in = floats(type, count, options.kind);
    std::vector<int64_t> steps(channels), lengths(samples);
    const int64_t equal = draw() % (2 * tokens);
    for (int64_t& step : steps) step = options.steps == 1 ? equal : draw() % (2 * tokens);
    if (options.reference) steps[0] = 0;
    for (int64_t& length : lengths) length = 1 + draw() % tokens;
    std::vector<uint8_t> descending((options.order == 2 ? windows : 1) * channels);
    for (uint8_t& down : descending) down = draw() & 1;
    int64_t saved_size = 0;
    if (options.save && group == 2) saved_size = samples * (tokens / 2) * ((channels + 7) / 8);
    if (options.save && group > 2) saved_size = count * options.saved_bytes;
    Bytes out(in.size(), 0x5a), saved(saved_size, 0x5a), gradient(options.save ? in.size() : 0, 0x5a);

    ShiftSort call{};
    call.in = in.data();
    call.out = out.data();
    call.saved = saved.empty() ? nullptr : saved.data();
    call.steps = options.steps ? steps.data() : nullptr;
    call.lengths = options.ragged ? lengths.data() : nullptr;
    call.descending = options.order ? descending.data() : nullptr;
    call.num_samples = samples;
    call.num_tokens = tokens;
    call.num_channels = channels;
    call.group_size = group;
    call.direction_rows = options.order ? int(descending.size() / channels) : 0;
    call.reference = options.reference;
    call.dtype = options.dtype;
    call.saved_bytes = group > 2 ? options.saved_bytes : 0;
    int status = shift_sort_forward(&call, isa, 1);
    if (status == 0 && options.save) {
        const Bytes above = floats(type, count, 0);
        call.in = above.data();
        call.out = gradient.data();
        status = shift_sort_backward(&call, isa, 1);
    }
    if (status) {
        fprintf(stderr, "the kernel returned %d\n", status);
        exit(status);
    }
    printf("%s (%" PRId64 ", %" PRId64 ", %" PRId64 ") group=%" PRId64 " values=%d steps=%d order=%d ragged=%d "
           "reference=%d saved_bytes=%d: %016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\n",
           type.name, samples, tokens, channels, group, options.kind, options.steps, options.order, options.ragged,
           options.reference, options.save ? options.saved_bytes : -1, digest(out), digest(saved), digest(gradient));
}

}  // namespace

int main(int argc, char** argv) {
    const int isa = argc > 1 ? atoi(argv[1]) : 0;
    const int64_t shapes[][3] = {{2, 1, 5}, {1, 7, 64}, {2, 33, 37}, {1, 64, 128}, {1, 200, 19}, {1, 1000, 40}};
    const int64_t groups[] = {1, 2, 3, 4, 8, 13, 16, 32, 100, 256, 1000};
    for (int dtype = 0; dtype < 4; ++dtype)
        for (const auto& shape : shapes)
            for (int64_t group : groups)
                for (int kind = 0; group <= shape[1] && kind < 3; ++kind)
                    for (int variant = 0; variant < 4; ++variant) {
                        Options options{dtype, kind, int(draw() % 3), int(draw() % 3), variant % 2 == 1, draw() % 4 == 0,
                                        variant < 3, 0};
                        const int widths[] = {2, 4, group <= 256 ? 1 : 2};
                        options.saved_bytes = group <= 2 ? 0 : widths[draw() % 3];
                        print_case(isa, shape[0], shape[1], shape[2], group, options);
                    }
    return 0;
}
