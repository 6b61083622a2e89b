/* Exponentials and logarithms that the compiler can run on whole vectors, and how functions are compiled.

   exp: a polynomial on [-ln 2 / 2, ln 2 / 2] times a power of two put together from its bits; it agrees with the exact
   one to a few units in the last place. log(x) for x from 1 on, log(1 + e) for e up to 1 and log(1 - p) for p up to 1/2 are
   series of atanh in an argument of at most 1/3. */

#ifndef MIXNMATCH_NUMBERS_H
#define MIXNMATCH_NUMBERS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* One object file serves every processor: GCC compiles these functions once for each level of the instruction set, and
   the loader picks the best one. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && defined(__x86_64__) && defined(__GLIBC__)
#define FOR_ALL_PROCESSORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_ALL_PROCESSORS
#endif

#if defined(_MSC_VER)
#define INLINE static __forceinline
#define SIMD(clauses)
#else
#define INLINE static inline __attribute__((always_inline))
#define SIMD_(text) _Pragma(#text)
#define SIMD(clauses) SIMD_(omp simd clauses)
#endif

/* Added to a number below 2^22 (2^51), these leave its nearest whole number in the last bits. */
#define TO_LAST_BITS_F 12582912.0f
#define TO_LAST_BITS_D 6755399441055744.0

INLINE float exp_f(float x) {
    x = x > -87.0f ? x : -87.0f;
    float k = x * 1.44269504088896341f + TO_LAST_BITS_F;
    int32_t bits;
    memcpy(&bits, &k, sizeof bits);
    k -= TO_LAST_BITS_F;
    /* ln 2 in two parts, the first with trailing zero bits, so that k ln 2 loses nothing. */
    float r = (x - k * 0.693359375f) - k * -2.12194440054690583e-4f;
    float p = 1 / 720.0f + r * (1 / 5040.0f);
    p = 1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * p));
    p = 1.0f + r * (1.0f + r * (0.5f + r * p));
    bits = (int32_t)((uint32_t)(bits + 127) << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

INLINE double exp_d(double x) {
    x = x > -708.0 ? x : -708.0;
    double k = x * 1.44269504088896340736 + TO_LAST_BITS_D;
    int64_t bits;
    memcpy(&bits, &k, sizeof bits);
    k -= TO_LAST_BITS_D;
    double r = (x - k * 0.693147182464599609375) - k * -1.90465429995776804525e-9;
    double p = 1 / 479001600.0 + r * (1 / 6227020800.0);
    p = 1 / 362880.0 + r * (1 / 3628800.0 + r * (1 / 39916800.0 + r * p));
    p = 1 / 720.0 + r * (1 / 5040.0 + r * (1 / 40320.0 + r * p));
    p = 1 / 6.0 + r * (1 / 24.0 + r * (1 / 120.0 + r * p));
    p = 1.0 + r * (1.0 + r * (0.5 + r * p));
    bits = (int64_t)((uint64_t)(bits + 1023) << 52);
    double power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* 2 atanh(s) = log((1 + s) / (1 - s)) for 0 <= s <= 1/3. */
INLINE double twice_atanh(double s) {
    double q = s * s, p = 1 / 31.0 + q * (1 / 33.0);
    p = 1 / 25.0 + q * (1 / 27.0 + q * (1 / 29.0 + q * p));
    p = 1 / 19.0 + q * (1 / 21.0 + q * (1 / 23.0 + q * p));
    p = 1 / 13.0 + q * (1 / 15.0 + q * (1 / 17.0 + q * p));
    p = 1 / 7.0 + q * (1 / 9.0 + q * (1 / 11.0 + q * p));
    /* The correction is small beside 2 s: its rounding hardly shows. */
    return 2.0 * s + 2.0 * s * (q * (1 / 3.0 + q * (1 / 5.0 + q * p)));
}

/* log(x) for finite x >= 1: that of a power of two, and of what is left of x between 1 and 2. */
INLINE double log_from_1(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    double power = (double)((int32_t)(bits >> 52) - 1023);
    bits = (bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL;
    memcpy(&x, &bits, sizeof x);
    return power * 0.693147180559945309417 + twice_atanh((x - 1.0) / (x + 1.0));
}

/* log(1 + e) for 0 <= e <= 1, to all digits at both ends: log 2 + log((1 + e) / 2) next to 1. */
INLINE double log_1_plus(double e) {
    double part = twice_atanh((e > 0.5 ? 1.0 - e : e) / ((e > 0.5 ? 3.0 : 2.0) + e));
    return e > 0.5 ? 0.693147180559945309417 - part : part;
}

#endif
