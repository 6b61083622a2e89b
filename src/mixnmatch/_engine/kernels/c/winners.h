/* The largest entry of a row and its place; included once for float and for double. */

/* Entries that are worked on side by side. What is left of a row is looked at together with entries before it: one by
   one, its few entries would take as long as all the others. */
#define WIDTH 16
#define FOR_WIDTH for (Size r = 0; r < WIDTH; r++)
#define WHOLE(classes) ((classes) - (classes) % WIDTH)

INLINE REAL NAMED(row_max)(const REAL *row, Size classes) {
    if (classes < WIDTH) {
        REAL top = row[0];
        for (Size j = 1; j < classes; j++) top = row[j] > top ? row[j] : top;
        return top;
    }
    REAL top = row[0];
    const REAL *last = row + classes - WIDTH; /* some of these entries are looked at twice */
    Size whole = WHOLE(classes);
    SIMD(reduction(max : top))
    for (Size j = 0; j < whole; j++) top = row[j] > top ? row[j] : top;
    if (whole == classes) return top;
    SIMD(reduction(max : top))
    FOR_WIDTH top = last[r] > top ? last[r] : top;
    return top;
}

/* Rows of more classes than this are cut into pieces of so many: only one of them is searched for its largest entry. */
#define LONG 256
#define PIECE 64

/* First place of the largest entry of a row that is at least as long as a vector. */
INLINE Size NAMED(place_of)(REAL top, const REAL *row, Size classes) {
    BITS end = (BITS)classes, whole = (BITS)WHOLE(classes), winner = end; /* as wide as an entry: vectors hold as many */
    SIMD(reduction(min : winner))
    for (BITS j = 0; j < whole; j++) {
        BITS here = row[j] == top ? j : end;
        winner = here < winner ? here : winner;
    }
    if (whole < end) {
        SIMD(reduction(min : winner))
        for (BITS r = 0; r < WIDTH; r++) {
            BITS here = row[end - WIDTH + r] == top ? end - WIDTH + r : end;
            winner = here < winner ? here : winner;
        }
    }
    return winner < end ? (Size)winner : 0; /* no entry equals the largest if some are NaN */
}

/* First place of the largest entry. */
INLINE Size NAMED(row_winner)(const REAL *row, Size classes) {
    REAL top = row[0];
    if (classes < WIDTH) {
        Size winner = 0;
        for (Size j = 1; j < classes; j++) {
            winner = row[j] > top ? j : winner;
            top = row[j] > top ? row[j] : top;
        }
        return winner;
    }
    if (classes <= LONG) return NAMED(place_of)(NAMED(row_max)(row, classes), row, classes);
    Size start = 0;
    for (Size at = 0; at < classes; at += PIECE) {
        Size from = at < classes - PIECE ? at : classes - PIECE;
        REAL here = NAMED(row_max)(row + from, PIECE);
        if (here > top) top = here, start = from;
    }
    return start + NAMED(place_of)(top, row + start, PIECE);
}

#undef LONG
#undef PIECE
