// Denormal numbers are taken for zero while one of these lives.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace amphw {

// A product with denormal operands takes up to 150 times as long; none of them matters to training. Wherever
// arithmetic is done, so that its bits do not depend on the thread.
class FlushDenormals {
public:
#if defined(__SSE__)
    FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO); }
    ~FlushDenormals() { _mm_setcsr(before_); }

private:
    static constexpr unsigned FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040;
    unsigned before_;
#elif defined(__aarch64__)
    FlushDenormals() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" : : "r"(before_ | FLUSH_TO_ZERO));
    }
    ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

private:
    static constexpr uint64_t FLUSH_TO_ZERO = uint64_t(1) << 24;
    uint64_t before_;
#endif
};

}  // namespace amphw
