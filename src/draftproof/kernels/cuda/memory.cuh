// Order between kernels, loads that respect it, and bulk copies into shared memory with their barriers.
#pragma once
#include "numbers.cuh"

// Programmatic dependent launch. Nothing that another kernel of the step wrote, however far back, may be read or
// overwritten before wait_for_predecessors.
__device__ __forceinline__ void wait_for_predecessors() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void release_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Loads of what a predecessor wrote. Plain loads through const __restrict__ pointers are hoisted above
// griddepcontrol.wait by ptxas; these stay where they stand.
__device__ __forceinline__ uint4 load_fresh_16(const void* address) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_fresh_8(const void* address) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_fresh_4(const void* address) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ bfloat16 load_fresh_2(const void* address) {
  unsigned short v;
  asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ float load_fresh_float(const void* address) { return __uint_as_float(load_fresh_4(address)); }

// A weight that is read once: past L1, and the neighbouring lines are asked for too.
__device__ __forceinline__ uint4 load_once_16(const void* address) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
  return v;
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

// Barriers in shared memory are named by their shared address; each takes one arrival and a count of bytes.
__device__ __forceinline__ void barrier_init(uint32_t barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_init_for(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// After the inits, before the first copy: the copy engine sees the barriers.
__device__ __forceinline__ void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
// Copy `bytes` (a multiple of 16, both addresses too) to shared memory; the barrier must expect them.
__device__ __forceinline__ void copy_bulk(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(destination), "l"(source), "r"(bytes), "r"(barrier) : "memory");
}
__device__ __forceinline__ void fetch_bulk(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
  barrier_expect(barrier, bytes);
  copy_bulk(destination, source, bytes, barrier);
}
// Copies of 4 bytes by one thread, in groups of its own: wait until at most `PENDING` groups are under way.
__device__ __forceinline__ void copy_4(uint32_t destination, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(destination), "l"(source) : "memory");
}
__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void wait_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
// Between a griddepcontrol.wait and a bulk copy of what the predecessor wrote with ordinary stores.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }

// A barrier among `threads` threads of a block; ids 1 to 15.
__device__ __forceinline__ void sync_threads_of(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// The same, without waiting: what this thread wrote before is seen by those who sync.
__device__ __forceinline__ void arrive_for_threads_of(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
