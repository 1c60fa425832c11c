// What tiles of vectors need from the hardware: copies into shared memory that go on beside the work, and products
// of small matrices on tensor cores. The emulator of the tests has its own.
#pragma once

#include "gpu.cuh"

#ifndef GPU_EMULATED

namespace pyfast::cuda {

// Copies 16 bytes to shared memory, or zeros if `there` is false. Both addresses are multiples of 16. A thread's
// copies up to its commit_copies() are one group. A thread can read the bytes after it has waited for their group,
// and other threads after the next barrier.
__device__ inline void copy_16_bytes(void* shared, const void* global, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(global)), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all of the thread's groups except the last `groups`.
template <int groups>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

// For a warp: adds the product of two matrices to `sums`, which is 16 x 8. Of the first matrix, lane l has two
// registers each of the rows l / 4 and l / 4 + 8; of the second, it has the column l / 4. A register has four
// codes, or two numbers in bfloat16; what lanes of the same l % 4 have in the same place is multiplied with each
// other. The sums of a lane are in its two rows, the columns l % 4 * 2 and the next.
__device__ inline void add_products_of_codes(int& s0, int& s1, int& s2, int& s3, unsigned a0, unsigned a1,
                                             unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(s0), "+r"(s1), "+r"(s2), "+r"(s3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline void add_products_of_bfloat16(float& s0, float& s1, float& s2, float& s3, unsigned a0,
                                                unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Two numbers, rounded to bfloat16.
__device__ inline unsigned two_bfloat16(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

}  // namespace pyfast::cuda

#endif
