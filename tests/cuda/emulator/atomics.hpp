// Atomics are relaxed, as CUDA's are: ThreadSanitizer takes no order from them.
#pragma once

#include <concepts>
#include <type_traits>

namespace emulator {

// The type is that of what is pointed at, as with overloads.
template <class T>
using Same = std::type_identity_t<T>;
template <class T>
concept Word = sizeof(T) == 4 || sizeof(T) == 8;

template <Word T, class F>
T update(T* at, F change) {
    T before;
    __atomic_load(at, &before, __ATOMIC_RELAXED);
    T after = change(before);
    while (!__atomic_compare_exchange(at, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        after = change(before);
    }
    return before;
}

}  // namespace emulator

template <class T>
T atomicAdd(T* at, emulator::Same<T> value) {
    return emulator::update(at, [=](T a) { return static_cast<T>(a + value); });
}
template <std::integral T>
T atomicSub(T* at, emulator::Same<T> value) {
    return emulator::update(at, [=](T a) { return static_cast<T>(a - value); });
}
template <std::integral T>
T atomicMin(T* at, emulator::Same<T> value) {
    return emulator::update(at, [=](T a) { return value < a ? value : a; });
}
template <std::integral T>
T atomicMax(T* at, emulator::Same<T> value) {
    return emulator::update(at, [=](T a) { return a < value ? value : a; });
}
template <std::integral T>
T atomicOr(T* at, emulator::Same<T> value) {
    return emulator::update(at, [=](T a) { return static_cast<T>(a | value); });
}
template <std::integral T>
T atomicAnd(T* at, emulator::Same<T> value) {
    return emulator::update(at, [=](T a) { return static_cast<T>(a & value); });
}
template <class T>
T atomicExch(T* at, emulator::Same<T> value) {
    return emulator::update(at, [=](T) { return value; });
}
template <std::integral T>
T atomicCAS(T* at, emulator::Same<T> expected, emulator::Same<T> value) {
    return emulator::update(at, [=](T a) { return a == expected ? value : a; });
}
