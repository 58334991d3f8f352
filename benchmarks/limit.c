/* The machine's own limit: how fast two tensors can be read and one written, or one read and a
 * smaller one written, or up to four read and one written.
 *
 * Each variant computes an AND of what it reads, which costs less than moving it. The caller
 * keeps the best. The functions that time return the seconds of one pass, over `repeats` passes.
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

/* Stores a cache line. */
static inline void put(const uint32_t *kept, uint32_t *restrict c, int past_caches)
{
#if STREAMING
    if (past_caches) {
        for (size_t k = 0; k < 16; k += 8)
            _mm256_stream_ps((float *)(c + k), _mm256_load_ps((const float *)(kept + k)));
        return;
    }
#endif
    for (size_t k = 0; k < 16; ++k)
        c[k] = kept[k];
}

/* Cache lines first .. last of the smaller tensor: each is the AND of its share of the larger. */
static void fold(const uint32_t *restrict a, size_t lines_read, uint32_t *restrict c,
                 size_t lines_written, size_t first, size_t last, int past_caches)
{
    for (size_t line = first; line < last; ++line) {
        const size_t from = line * lines_read / lines_written;
        const size_t to = (line + 1) * lines_read / lines_written;
        uint32_t kept[16] __attribute__((aligned(64)));
        for (size_t k = 0; k < 16; ++k)
            kept[k] = a[from * 16 + k];
        for (size_t i = from + 1; i < to; ++i)
            for (size_t k = 0; k < 16; ++k)
                kept[k] &= a[i * 16 + k];
        put(kept, c + line * 16, past_caches);
    }
#if STREAMING
    if (past_caches)
        _mm_sfence();
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

static double elapsed(const struct timespec *begin)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin->tv_sec) + 1e-9 * (double)(end.tv_nsec - begin->tv_nsec);
}

double limit_time(int variant, int threads, const void *a, const void *b, void *c, size_t bytes,
                  int repeats)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int k = 0; k < repeats; ++k) {
        pass(variant, threads, a, b, c, bytes / 4);
        /* Keeps the compiler from taking passes together. */
        __asm__ volatile("" ::: "memory");
    }
    return elapsed(&begin) / repeats;
}

/* The same of one tensor read and a smaller one written. Both are cache lines long, and the one
 * written starts on one. */
double limit_fold_time(int variant, int threads, const void *a, size_t bytes_read, void *c,
                       size_t bytes_written, int repeats)
{
    const size_t lines_read = bytes_read / 64, lines_written = bytes_written / 64;
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int k = 0; k < repeats; ++k) {
#pragma omp parallel num_threads(variant < 2 ? 1 : threads)
        {
            const size_t count = (size_t)omp_get_num_threads();
            const size_t number = (size_t)omp_get_thread_num();
            fold(a, lines_read, c, lines_written, number * lines_written / count,
                 (number + 1) * lines_written / count, variant % 2);
        }
        __asm__ volatile("" ::: "memory");
    }
    return elapsed(&begin) / repeats;
}

/* Cache lines first .. last of a tensor: each is the AND of those of `count` others. */
static inline void merge(const uint32_t *const *from, const size_t count, uint32_t *restrict c,
                         size_t first, size_t last, int past_caches)
{
    for (size_t line = first; line < last; ++line) {
        uint32_t kept[16] __attribute__((aligned(64)));
        for (size_t k = 0; k < 16; ++k)
            kept[k] = from[0][line * 16 + k];
        for (size_t number = 1; number < count; ++number)
            for (size_t k = 0; k < 16; ++k)
                kept[k] &= from[number][line * 16 + k];
        put(kept, c + line * 16, past_caches);
    }
#if STREAMING
    if (past_caches)
        _mm_sfence();
#endif
}

/* The same of two, three or four tensors read and one written, all of one size: whole cache lines,
 * and the one written starts on one. */
double limit_merge_time(int variant, int threads, const uint32_t *const *from, int inputs, void *c,
                        size_t bytes, int repeats)
{
    const size_t lines = bytes / 64;
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int k = 0; k < repeats; ++k) {
#pragma omp parallel num_threads(variant < 2 ? 1 : threads)
        {
            const size_t count = (size_t)omp_get_num_threads();
            const size_t number = (size_t)omp_get_thread_num();
            const size_t first = number * lines / count, last = (number + 1) * lines / count;
            /* Spelled out, so that the compiler knows how many there are. */
            if (inputs == 4)
                merge(from, 4, c, first, last, variant % 2);
            else if (inputs == 3)
                merge(from, 3, c, first, last, variant % 2);
            else
                merge(from, 2, c, first, last, variant % 2);
        }
        __asm__ volatile("" ::: "memory");
    }
    return elapsed(&begin) / repeats;
}
