cimport cython

@cython.locals(
    lanes=int, nodes=int, done=long, top=int, lane=int, k=int, stop=int, need=int,
    now="long long", ready="long long", waits="long long",
)
cpdef long run(
    const int[::1] lane_start, const int[::1] needs, const long long[::1] lag,
    const long long[::1] duration, long long[::1] ends, int[::1] position, long long[::1] clock,
    int[::1] stack, int[::1] behind,
)

@cython.locals(lanes=int, top=int, count=long, lane=int, k=int, stop=int, need=int, waits=int)
cpdef long find_order(
    const int[::1] lane_start, const int[::1] needs, int[::1] order, int[::1] place,
    int[::1] position, int[::1] stack, int[::1] behind,
)

@cython.locals(v=int, lane=int, k=int, before=int)
cpdef renumber(
    const int[::1] lane_start, const int[::1] needs, const int[::1] place,
    int[::1] before_known, int[::1] needs_known,
)

@cython.locals(nodes=int, v=int, now="long long", ready="long long")
cpdef run_known(
    const int[::1] before, const int[::1] needs, const long long[::1] lag,
    const long long[::1] duration, long long[::1] ends,
)

@cython.locals(index=long)
cpdef count_kinds(const long long[::1] codes, long long[::1] counts)

@cython.locals(
    index=long, code="long long", stage=int, time="long long", carried="long long",
    joined_stage=int,
)
cpdef int fill_times(
    const long long[::1] codes, int stages, const long long[::1] times,
    const long long[::1] pair_times, long long[::1] out, long long[::1] fault,
)

@cython.locals(
    stages=int, size=long, count=int, rank=int, index=long, code="long long", kind=int, stage=int,
    micro=long, what=int, row=int, place=long, joined=int,
    paired=bint, valid=bint,
)
cpdef long locate(
    const long long[::1] codes, const int[::1] rank_start, const int[::1] rank_of, int kinds,
    long microbatches, int[::1] tables, int[::1] sends, long long[::1] fault,
)

@cython.locals(
    stages=int, size=long, nodes=long, index=long, code="long long", kind=int, stage=int,
    slot=long, other=int, need=long, wait="long long",
)
cpdef int link(
    const long long[::1] codes, long microbatches, const int[::1] up, const int[::1] down,
    const unsigned char[::1] remote_up, const unsigned char[::1] remote_down,
    const long long[::1] lag_up, const long long[::1] lag_down, int transfer_nodes,
    const int[::1] tables, int[::1] needs, long long[::1] lag, long long[::1] fault,
)

@cython.locals(
    ranks=int, size=long, first=long, each=int, t=int, send=long, code="long long", stage=int,
    micro=long, other=int, wire="long long", receive=long, node=long, final=long, k=long,
    producer=long, rank=int, index=long, kind=int, key=long,
)
cpdef int link_transfers(
    const long long[::1] codes, const int[::1] rank_start, const int[::1] rank_of,
    long microbatches, const int[::1] up, const int[::1] down, const long long[::1] lag_up,
    const long long[::1] lag_down, int channel, const int[::1] stream_up,
    const int[::1] stream_down, bint holds, const int[::1] tables, const int[::1] sends,
    int receives, int[::1] last, int[::1] lane_start, int[::1] needs, long long[::1] lag,
    long long[::1] duration, long long[::1] fault,
)

@cython.locals(rank=int, index=long, kind=int, before="long long")
cpdef read_starts(
    const long long[::1] codes, const int[::1] rank_start, const long long[::1] duration,
    long long[::1] ends, bint held, long long[::1] starts,
)

@cython.locals(index=long, total="long long")
cpdef long long add_work(
    const long long[::1] codes, const long long[::1] starts, const long long[::1] ends,
)

@cython.locals(index=long, most="long long", least="long long")
cpdef long long largest(const long long[::1] values)
