cimport cython

@cython.locals(
    lanes=int, nodes=int, done=long, top=int, lane=int, k=int, stop=int, need=int, other=int,
    now="long long", ready="long long",
)
cpdef long run(
    const int[::1] lane_start, const int[::1] needs, const long long[::1] lag,
    const long long[::1] duration, long long[::1] ends, int[::1] position, long long[::1] clock,
    int[::1] stack, int[::1] behind, int[::1] waiter,
)

@cython.locals(lanes=int, top=int, count=long, lane=int, k=int, stop=int, need=int, other=int)
cpdef long rank_nodes(
    const int[::1] lane_start, const int[::1] needs, int[::1] order, int[::1] position,
    int[::1] stack, int[::1] behind, int[::1] waiter, unsigned char[::1] done,
)

@cython.locals(nodes=int, v=int, now="long long", ready="long long")
cpdef run_known(
    const int[::1] before, const int[::1] needs, const long long[::1] lag,
    const long long[::1] duration, long long[::1] ends,
)

@cython.locals(
    stages=int, size=long, ranks=int, node=int, rank=int, index=long, code="long long", kind=int,
    stage=int, slot=long, table=int, carried="long long", joined_stage=int, micro=long, need=int,
    wait="long long", long_time="long long", other=long,
)
cpdef long link(
    const long long[::1] codes, const int[::1] rank_start, const int[::1] up,
    const int[::1] down, const unsigned char[::1] remote_up, const unsigned char[::1] remote_down,
    int microbatches, const long long[::1] times, const long long[::1] pair_times,
    const long long[::1] lag_up, const long long[::1] lag_down, bint comms, bint holds,
    int[::1] tables, int[::1] node_of, int[::1] lane_start, int[::1] needs,
    long long[::1] lag, long long[::1] duration, int[::1] lane_of, long long[::1] fault,
)
