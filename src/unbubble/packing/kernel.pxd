cimport cython

@cython.locals(nodes=int, lane=int, k=int, n=int, need=int, late=int)
cpdef in_rounds(
    const int[::1] lane_start, const int[::1] weights_start, const int[::1] needs,
    const long long[::1] changes, const int[::1] topological, int[::1] lane_of, int[::1] rounds,
    int[::1] places, int[::1] order,
)

@cython.locals(
    lanes=int, lane=int, n=int, k=int, w=int, at=int, need=int,
    now="long long", arrival="long long", after="long long",
)
cpdef fill(
    const int[::1] order, const int[::1] lane_of, const int[::1] lane_start,
    const int[::1] weights_start, const int[::1] needs, const long long[::1] lag,
    const long long[::1] duration, const long long[::1] changes, const long long[::1] capacity,
    const long long[::1] work, long long target, bint pace, const unsigned char[::1] urgent,
    const long long[::1] deadlines, long long[::1] ends, int[::1] filled, int[::1] weight,
    int[::1] ready, long long[::1] clock, long long[::1] held, long long[::1] waited,
)

@cython.locals(
    nodes=int, lane=int, k=int, back=int, need=int, latest="long long",
)
cpdef find_deadlines(
    const int[::1] lane_start, const int[::1] weights_start, const int[::1] needs,
    const long long[::1] lag, const long long[::1] duration, const int[::1] order,
    const long long[::1] lane_ends, long long[::1] deadlines,
)
