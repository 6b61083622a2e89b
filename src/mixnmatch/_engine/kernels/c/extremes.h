/* What a table is checked by; included once for float and for double. */

/* Sum of a row, and what its entries do to the smallest and the largest of each lane. */
INLINE REAL NAMED(long_row_extremes)(const REAL *row, Size classes, REAL *low, REAL *high) {
    Size whole = WHOLE(classes);
    BITS seen = (BITS)AGAIN(classes);
    const REAL *last = row + classes - WIDTH;
    REAL lanes[WIDTH] = {0};
    for (Size j = 0; j < whole; j += WIDTH) {
        SIMD()
        FOR_LANES_OF_ROW {
            REAL v = row[j + r];
            low[r] = v < low[r] ? v : low[r];
            high[r] = v > high[r] ? v : high[r];
            lanes[r] += v;
        }
    }
    if (whole < classes) {
        SIMD()
        FOR_LANES_OF_ROW {
            REAL v = last[r];
            low[r] = v < low[r] ? v : low[r];
            high[r] = v > high[r] ? v : high[r];
            lanes[r] += r >= seen ? v : 0;
        }
    }
    return NAMED(sum_of_lanes)(lanes);
}

/* Entries that are read twice while they are in the cache. */
#define CACHED 4096

/* Smallest and largest entry, and smallest and largest sum of a row; all NaN if some sum is. */
FOR_ALL_PROCESSORS static void NAMED(extremes)(const REAL *x, Size n, Size classes, double *out) {
    REAL low = x[0], high = x[0], least = INFINITY, most = -INFINITY;
    int undefined = 0;
    if (classes == 2) { /* in one loop: rows are too short for vectors */
        SIMD(reduction(min : low, least) reduction(max : high, most) reduction(| : undefined))
        for (Size i = 0; i < n; i++) {
            REAL a = x[2 * i], b = x[2 * i + 1], sum = a + b, small = a < b ? a : b, large = a > b ? a : b;
            low = small < low ? small : low;
            high = large > high ? large : high;
            undefined |= !(sum == sum);
            least = sum < least ? sum : least;
            most = sum > most ? sum : most;
        }
        n = 0;
    }
    if (classes >= WIDTH) {
        REAL lows[WIDTH], highs[WIDTH];
        FOR_WIDTH lows[r] = highs[r] = low;
        for (Size i = 0; i < n; i++) {
            REAL sum = NAMED(long_row_extremes)(x + i * classes, classes, lows, highs);
            undefined |= !(sum == sum);
            least = sum < least ? sum : least;
            most = sum > most ? sum : most;
        }
        for (Size r = 0; r < WIDTH; r++) {
            low = lows[r] < low ? lows[r] : low;
            high = highs[r] > high ? highs[r] : high;
        }
        n = 0;
    }
    Size step = CACHED / classes > 0 ? CACHED / classes : 1;
    for (Size start = 0; start < n; start += step) {
        Size rows = n - start < step ? n - start : step;
        const REAL *part = x + start * classes;
        SIMD(reduction(min : low) reduction(max : high))
        for (Size k = 0; k < rows * classes; k++) {
            low = part[k] < low ? part[k] : low;
            high = part[k] > high ? part[k] : high;
        }
        for (Size i = 0; i < rows; i++) {
            const REAL *row = part + i * classes;
            REAL sum = 0;
            for (Size j = 0; j < classes; j++) sum += row[j];
            undefined |= !(sum == sum);
            least = sum < least ? sum : least;
            most = sum > most ? sum : most;
        }
    }
    /* The sum of both infinities is NaN, too. */
    out[0] = undefined ? NAN : (double)low;
    out[1] = undefined ? NAN : (double)high;
    out[2] = undefined ? NAN : (double)least;
    out[3] = undefined ? NAN : (double)most;
}

#undef CACHED
