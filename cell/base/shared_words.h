// Copies between private memory and memory that another thread, process or NIC reads or writes at the same time.
//
// Every access to shared memory is one 8-byte atomic word. A race therefore yields a torn *image*, which checks detect,
// and never undefined behaviour. Thread-safety: one writer beside any number of readers.
//
// Invariants
//   1. Shared addresses are 8-byte aligned and sizes are multiples of 8.
//   2. Words are read in address order with acquire and written with release: a thread that sees a new word sees all
//      that its writer did before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cell {

inline constexpr size_t kWordBytes = 8;

inline uint64_t LoadWord(const std::byte* shared, std::memory_order order = std::memory_order_acquire) {
  auto* word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(shared));
  return std::atomic_ref<uint64_t>(*word).load(order);
}

inline void StoreWord(std::byte* shared, uint64_t value, std::memory_order order = std::memory_order_release) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(shared)).store(value, order);
}

inline void CopyFromShared(const std::byte* shared, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kWordBytes) {
    const uint64_t word = LoadWord(shared + at);
    std::memcpy(to + at, &word, kWordBytes);
  }
}

inline void CopyToShared(const std::byte* from, std::byte* shared, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kWordBytes) {
    uint64_t word;
    std::memcpy(&word, from + at, kWordBytes);
    StoreWord(shared + at, word);
  }
}

// Starts to load all cache lines of [shared, shared + bytes) without waiting for them.
inline void Prefetch(const std::byte* shared, size_t bytes) {
  constexpr size_t kLineBytes = 64;
  for (size_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(shared + at);
  // Without a side effect g++ 12 leaves out calls of functions that do nothing but prefetch.
  asm volatile("");
}

}  // namespace cell
