/* The machine's own limit: how fast n bytes can be read twice and written once.
 *
 * Each variant computes an AND of two inputs, which costs less than moving them. The caller
 * keeps the best. limit_time returns the seconds of one pass, over `repeats` passes.
 */
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <omp.h>

#if defined(__AVX__)
#include <immintrin.h>
#define STREAMING 1
#else
#define STREAMING 0
#endif

static void plain(const uint32_t *restrict a, const uint32_t *restrict b, uint32_t *restrict c,
                  size_t start, size_t end)
{
    for (size_t i = start; i < end; ++i)
        c[i] = a[i] & b[i];
}

static void streaming(const uint32_t *restrict a, const uint32_t *restrict b,
                      uint32_t *restrict c, size_t start, size_t end)
{
#if STREAMING
    size_t i = start;
    while (i < end && (uintptr_t)(c + i) % 64) {
        c[i] = a[i] & b[i];
        ++i;
    }
#if defined(__AVX512F__)
    for (; i + 16 <= end; i += 16) {
        const __m512i x = _mm512_loadu_si512(a + i), y = _mm512_loadu_si512(b + i);
        _mm512_stream_si512((void *)(c + i), _mm512_and_si512(x, y));
    }
#else
    for (; i + 16 <= end; i += 16) {
        for (size_t k = 0; k < 16; k += 8) {
            const __m256 x = _mm256_loadu_ps((const float *)(a + i + k));
            const __m256 y = _mm256_loadu_ps((const float *)(b + i + k));
            _mm256_stream_ps((float *)(c + i + k), _mm256_and_ps(x, y));
        }
    }
#endif
    for (; i < end; ++i)
        c[i] = a[i] & b[i];
    _mm_sfence();
#else
    plain(a, b, c, start, end);
#endif
}

/* 0: one thread; 1: one thread, streaming stores; 2, 3: the same on `threads` threads. */
int limit_variants(void)
{
    return 4;
}

static void pass(int variant, int threads, const uint32_t *a, const uint32_t *b, uint32_t *c,
                 size_t words)
{
    if (variant == 0) {
        plain(a, b, c, 0, words);
    } else if (variant == 1) {
        streaming(a, b, c, 0, words);
    } else {
#pragma omp parallel num_threads(threads)
        {
            const size_t count = (size_t)omp_get_num_threads();
            const size_t share = ((words + count - 1) / count + 15) / 16 * 16;
            const size_t wanted = (size_t)omp_get_thread_num() * share;
            const size_t start = wanted < words ? wanted : words;
            const size_t end = start + share < words ? start + share : words;
            if (variant == 2)
                plain(a, b, c, start, end);
            else
                streaming(a, b, c, start, end);
        }
    }
}

double limit_time(int variant, int threads, const void *a, const void *b, void *c, size_t bytes,
                  int repeats)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int k = 0; k < repeats; ++k) {
        pass(variant, threads, a, b, c, bytes / 4);
        /* Keeps the compiler from taking passes together. */
        __asm__ volatile("" ::: "memory");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec))
        / repeats;
}
