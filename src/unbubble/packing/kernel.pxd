cimport cython

@cython.locals(
    lanes=int, done=long, top=int, lane=int, k=int, w=int, stop=int, at=int, need=int, other=int,
    now="long long", arrival="long long", after="long long",
)
cpdef long fill(
    const int[::1] lane_start, const int[::1] weights_start, const int[::1] needs,
    const long long[::1] lag, const long long[::1] duration, const long long[::1] changes,
    const long long[::1] capacity, const long long[::1] patience, const long long[::1] deadlines,
    long long[::1] ends, int[::1] order, int[::1] position, int[::1] weight, int[::1] ready,
    long long[::1] clock, long long[::1] held, long long[::1] waited, int[::1] stack,
    int[::1] behind, int[::1] waiter,
)

@cython.locals(
    nodes=int, lane=int, k=int, back=int, need=int, latest="long long",
)
cpdef find_deadlines(
    const int[::1] lane_start, const int[::1] weights_start, const int[::1] needs,
    const long long[::1] lag, const long long[::1] duration, const int[::1] order,
    const long long[::1] lane_ends, long long[::1] deadlines,
)
