// Workspaces that are kept between calls, so that a small batch does not spend time on allocating and clearing
// them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#if __has_include(<unistd.h>)
#include <pthread.h>
#define PYFAST_HAS_FORK
#endif

namespace pyfast {

// Borrows an unused T or makes one, and returns it at the end of the scope. Before that, it calls T::trim(), which
// must free memory that is too large to keep.
template <class T>
class Reused {
  public:
    Reused() {
        Store& kept = store();
        const std::lock_guard lock(kept.guard);
        if (!kept.idle.empty()) {
            object_ = std::move(kept.idle.back());
            kept.idle.pop_back();
        } else {
            object_ = std::make_unique<T>();
        }
    }
    ~Reused() {
        if (object_) {
            object_->trim();
            Store& kept = store();
            const std::lock_guard lock(kept.guard);
            if (kept.idle.size() < kept.idle.capacity()) {
                kept.idle.push_back(std::move(object_));
            }
        }
    }
    Reused(Reused&&) noexcept = default;
    Reused& operator=(Reused&&) = delete;
    Reused(const Reused&) = delete;
    Reused& operator=(const Reused&) = delete;

    T* operator->() const { return object_.get(); }
    T& operator*() const { return *object_; }

  private:
    struct Store {
        Store() {
            idle.reserve(64);
#ifdef PYFAST_HAS_FORK
            // A fork waits for the lock. Otherwise it could stay locked in the child for ever.
            pthread_atfork([] { store().guard.lock(); }, [] { store().guard.unlock(); },
                           [] { store().guard.unlock(); });
#endif
        }
        std::mutex guard;
        std::vector<std::unique_ptr<T>> idle;
    };
    static Store& store() {
        static Store* const kept = new Store;  // never destroyed, because a thread may outlive static destructors
        return *kept;
    }

    std::unique_ptr<T> object_;
};

// Frees a vector that is larger than 32 MB.
template <class T, class Allocator>
void trim(std::vector<T, Allocator>& vector) {
    if (vector.capacity() * sizeof(T) > (std::size_t{32} << 20)) {
        vector = {};
    }
}

}  // namespace pyfast
