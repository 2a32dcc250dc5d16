// Windows of an image: copied into rows of their own, and rows of windows added up to an image.
#pragma once

#include "code.hpp"
#include "kernels/vector.hpp"

namespace amphw::AMPHW_ISA {
namespace {

inline int most(int a, int b) { return a > b ? a : b; }

// Calls `f(number of a window, columns of the image, columns of the window, floats)` for each run of pixels that a
// window shares with the image; one row of a window is one run.
template <class F>
inline void each_run(const Windows& w, F f) {
    const int down = (w.height + 2 * w.padding - w.tall) / w.stride + 1;
    const int across = (w.width + 2 * w.padding - w.wide) / w.stride + 1;
    for (int i = 0, number = 0; i < down; i++) {
        const int y = i * w.stride - w.padding, top = most(0, -y), bottom = least(w.tall, w.height - y);
        for (int j = 0; j < across; j++, number++) {
            const int x = j * w.stride - w.padding, left = most(0, -x), right = least(w.wide, w.width - x);
            for (int row = top; row < bottom && left < right; row++)
                f(number, ((y + row) * w.width + x + left) * w.channels, (row * w.wide + left) * w.channels,
                  (right - left) * w.channels);
        }
    }
}

inline void clear(float* to, int64_t n) {
    for_vectors(n, [=](int64_t k, auto part) { part.store(to + k, Floats{}); });
}

// Kernels::patches
void patches(const Windows& w, const float* image, float* const* windows, int64_t offset) {
    if (w.padding > 0) {
        const int down = (w.height + 2 * w.padding - w.tall) / w.stride + 1;
        const int across = (w.width + 2 * w.padding - w.wide) / w.stride + 1;
        for (int k = 0; k < down * across; k++) clear(windows[k] + offset, int64_t(w.tall) * w.wide * w.channels);
    }
    each_run(w, [&](int number, int from, int to, int n) {
        float* d = windows[number] + offset + to;
        const float* a = image + from;
        for_vectors(n, [=](int64_t k, auto part) { part.store(d + k, part.load(a + k)); });
    });
}

// Kernels::unpatch
void unpatch(const Windows& w, float* const* windows, int64_t offset, float* image) {
    const bool pixels = w.tall == 1 && w.wide == 1 && w.stride == 1;  // each of them once
    if (!pixels) clear(image, int64_t(w.height) * w.width * w.channels);
    each_run(w, [&](int number, int to, int from, int n) {
        const float* a = windows[number] + offset + from;
        float* d = image + to;
        if (pixels)
            for_vectors(n, [=](int64_t k, auto part) { part.store(d + k, part.load(a + k)); });
        else
            for_vectors(n, [=](int64_t k, auto part) { part.store(d + k, part.load(d + k) + part.load(a + k)); });
    });
}

}  // namespace
}  // namespace amphw::AMPHW_ISA
