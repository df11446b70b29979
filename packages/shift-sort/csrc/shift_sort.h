// The C interface of the CPU kernel of shift_sort, and the declarations that its files share.
#pragma once

#include <cstddef>
#include <cstdint>

// One call. All arrays are dense; (B, N, C) has C last. shift_sort/cpu.py holds the same struct.
struct ShiftSort {
    const void* in;             // (B, N, C): values forward, gradient of the result backward
    void* out;                  // (B, N, C): result forward, gradient of the values backward
    void* saved;                // written forward unless null, read backward; its format is saved_bytes
    const int64_t* steps;       // (C,), at least 0, or null: no shift
    const int64_t* lengths;     // (B,), 1 to N, or null: N
    const uint8_t* descending;  // (1, C) or (windows, C) of 0 and 1, or null: upwards
    int64_t num_samples, num_tokens, num_channels;
    int64_t group_size;         // 1 to N
    int32_t direction_rows;     // rows of descending: 1 or the number of windows
    int32_t reference;          // 1: results placed by the ranks of channel 0
    int32_t dtype;              // 0 float64, 1 float32, 2 float16, 3 bfloat16
    int32_t saved_bytes;        // 0: (B, N / 2, ceil(C / 8)) bits, 1 where a pair is swapped (group_size 2)
                                // 1: (B, N, C) slot in the window; 2, 4: (B, N, C) token, each of 2 or 4 bytes
};

// Memory of one thread, kept between calls; it grows and never shrinks.
struct Workspace {
    char* bytes = nullptr;
    size_t size = 0;
    ~Workspace();
    void reserve(size_t wanted);  // throws std::bad_alloc
};

// The kernel for one instruction set. Tiles are numbered over samples and blocks of channels.
struct Kernel {
    int64_t (*tiles)(const ShiftSort&);
    size_t (*workspace_bytes)(const ShiftSort&);
    void (*forward)(const ShiftSort&, int64_t begin, int64_t end, char* workspace);
    void (*backward)(const ShiftSort&, int64_t begin, int64_t end, char* workspace);
};

extern const Kernel kernel_portable;
#ifdef SHIFT_SORT_X86
extern const Kernel kernel_avx2;
extern const Kernel kernel_avx512;
#endif
