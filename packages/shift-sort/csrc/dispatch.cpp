// Chooses the kernel for the machine and distributes the tiles of a call over threads.

#include "shift_sort.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

Workspace::~Workspace() { std::free(bytes); }

void Workspace::reserve(size_t wanted) {
    if (wanted <= size) return;
    std::free(bytes);
    size = 0;
    bytes = static_cast<char*>(std::aligned_alloc(64, (wanted + 63) / 64 * 64));
    if (!bytes) throw std::bad_alloc();
    size = wanted;
}

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

thread_local Workspace workspace;

// With fewer elements per thread, another thread costs more than it saves.
constexpr int64_t kElementsPerThread = 1 << 16;

const Kernel* find_kernel(int isa) {
#ifdef SHIFT_SORT_X86
    if (isa == 2) {
        const bool here = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        return here ? &kernel_avx512 : nullptr;
    }
    if (isa == 1) return __builtin_cpu_supports("avx2") ? &kernel_avx2 : nullptr;
#endif
    return isa == 0 ? &kernel_portable : nullptr;
}

// Whether the kernel stays within its arrays.
bool is_legal(const ShiftSort& call) {
    const auto all = [](const int64_t* values, int64_t count, int64_t least, int64_t most) {
        return !values || std::all_of(values, values + count, [=](int64_t x) { return least <= x && x <= most; });
    };
    return 1 <= call.group_size && call.group_size <= call.num_tokens &&
           all(call.lengths, call.num_samples, 1, call.num_tokens) &&
           all(call.steps, call.num_channels, 0, std::numeric_limits<int64_t>::max());
}

int run(const ShiftSort& call, int isa, int threads, bool is_forward) {
    const Kernel* kernel = find_kernel(isa);
    if (!kernel) return 1;
    if (!is_legal(call)) return 3;
    const int64_t tiles = kernel->tiles(call);
    const auto work = is_forward ? kernel->forward : kernel->backward;
    const size_t bytes = kernel->workspace_bytes(call);
    const int64_t elements = call.num_samples * call.num_tokens * call.num_channels;
    const int64_t parts = std::max<int64_t>(1, std::min({int64_t(threads), tiles, elements / kElementsPerThread}));
    try {
        workspace.reserve(bytes);
        std::vector<Workspace> others(parts - 1);
        std::vector<std::thread> helpers;
        int64_t begin = 0;
        for (int64_t part = 1; part < parts; ++part) {
            const int64_t end = tiles * part / parts;
            char* memory = nullptr;
            try {
                others[part - 1].reserve(bytes);
                memory = others[part - 1].bytes;
                helpers.emplace_back([&call, work, begin, end, memory] { work(call, begin, end, memory); });
            } catch (const std::exception&) {  // no thread or memory to be had: the caller does the rest
                break;
            }
            begin = end;
        }
        work(call, begin, tiles, workspace.bytes);
        for (std::thread& helper : helpers) helper.join();
    } catch (const std::bad_alloc&) {
        return 2;
    }
    return 0;
}

}  // namespace

// Rises whenever ShiftSort or the meaning of its fields changes.
EXPORT int shift_sort_interface() { return 1; }

// isa: 0 portable, 1 avx2, 2 avx512.
EXPORT int shift_sort_has(int isa) { return find_kernel(isa) != nullptr; }

// 0: done. 1: this machine lacks the instruction set. 2: out of memory.
// 3: a group size, length or step out of range.
EXPORT int shift_sort_forward(const ShiftSort* call, int isa, int threads) {
    return run(*call, isa, threads, true);
}
EXPORT int shift_sort_backward(const ShiftSort* call, int isa, int threads) {
    return run(*call, isa, threads, false);
}
