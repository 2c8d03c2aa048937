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

@cython.locals(
    lanes=int, leaves=int, k=int, need=int, lane=int, leaf=int, start=int, stop=int, first=int,
    chosen=int, passed=int, now="long long", limit="long long", later="long long",
    taken="long long", most="long long", begin="long long", never="long long",
)
cpdef backfill(
    const int[::1] lane_start, const int[::1] lane_of, const int[::1] queue_start,
    const int[::1] queue_of, const int[::1] needs, const long long[::1] lag,
    const long long[::1] duration, const long long[::1] changes, const long long[::1] capacity,
    int reach, int[::1] heads, int[::1] following, int[::1] users, int[::1] further,
    long long[::1] ends, long long[::1] clock, long long[::1] held, int[::1] done,
    long long[::1] wakes, int[::1] order,
)

@cython.locals(found=int, queue=int, head=int)
cdef int next_head(const int[::1] heads, int start, int stop, int after) noexcept

@cython.locals(need=int)
cdef long long arrival(
    int k, const int[::1] needs, const long long[::1] lag, const long long[::1] ends
) noexcept

cdef void wake(long long[::1] wakes, int leaf, long long time) noexcept
