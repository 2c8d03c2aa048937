"""Writes what MegaScan's newer files hold of Megatron's 1F1B, each rank on a clock of its own.

The order of a rank's ranges, their names and arguments are those of its schedule; a transfer holds
the ranks' streams from where each posts it until it is done on both. The aggregation cuts the
longer of the two to the length of the shorter, at its start. First and last ranks have empty ranges
where they have no neighbour.
"""

import json

COUNTERPARTS = {"send-warmup": {"recv-warmup", "recv-extra"}, "exchange-next": {"exchange-prev"},
                "recv-cooldown": {"send-extra", "send-cooldown"}}  # fmt: skip
"""Of transfers with the next rank, what they are there."""


def ranges(rank, ranks, m):
    """Name and micro_batch_index of what a rank does, in order; MegaScan's, odd ones included."""
    warmup = min(ranks - rank - 1, m)
    rest = m - warmup
    for i in range(warmup):
        yield from (("recv-warmup", i), ("forward-warmup", i), ("send-warmup", i))
    if rest:
        yield "recv-extra", warmup
    for i in range(rest):
        yield from (("forward", warmup + i), ("exchange-next", None), ("backward", i))
        yield ("exchange-prev", None) if i < rest - 1 else ("send-extra", m - 1)
    for i in range(rest, m):
        yield from (("recv-cooldown", i), ("backward-cooldown", i), ("send-cooldown", i))


def timetable(times, m, transfer):
    """[name, index, start, end, took] of every rank, in µs: `times[rank]` is that of F and of B,
    `took` how long both ends of a transfer were at it, None where nothing moved."""
    ranks = len(times)
    rows = [[[*one, 0, 0, None] for one in ranges(rank, ranks, m)] for rank in range(ranks)]
    clock, place = [0] * ranks, [0] * ranks
    while any(at < len(row) for at, row in zip(place, rows, strict=True)):
        for rank, row in enumerate(rows):
            while place[rank] < len(row):
                one = row[place[rank]]
                name, start = one[0], clock[rank]
                if name.startswith(("forward", "backward")):
                    end = start + times[rank][name.startswith("backward")]
                else:
                    there = rank + (1 if name in COUNTERPARTS else -1)
                    end = start
                    if 0 <= there < ranks:
                        if there < rank or place[there] == len(rows[there]):
                            break  # the earlier of two ranks does it for both
                        other = rows[there][place[there]]
                        if other[0] not in COUNTERPARTS[name]:
                            break
                        end = max(start, clock[there]) + transfer
                        one[4] = min(end - start, end - clock[there])
                        other[2:] = clock[there], end, one[4]
                        clock[there], place[there] = end, place[there] + 1
                one[2:4] = start, end
                clock[rank], place[rank] = end, place[rank] + 1
    return rows


def write_megascan(path, times, m, transfer, *, offsets=None, dp=1, tp=1, reduce=0, iterations=1):
    """`reduce` µs of every action are a collective of tensor parallelism; `offsets` by g_rk, µs."""
    events = []
    rows = timetable(times, m, transfer)
    length = max(row[-1][3] for row in rows) + 100
    for turn in range(iterations):
        for d in range(dp):
            for p, row in enumerate(rows):
                for t in range(tp):
                    rank = (p * dp + d) * tp + t
                    own = {"iteration": turn, "dp_rk": d, "pp_rk": p, "tp_rk": t, "g_rk": rank}
                    shift = (offsets or {}).get(rank, 0) + turn * length

                    def add(name, start, end, rank=rank, own=own, shift=shift, **args):
                        row = {"name": name, "ph": "X", "ts": start + shift, "dur": end - start}
                        events.append(row | {"pid": rank, "tid": 0, "args": own | args})

                    for name, index, start, end, took in row:
                        args = {} if index is None else {"micro_batch_index": index}
                        if "ward" not in name:
                            args |= {"data": None if took is None else 4096}
                            start = end - (took or 0)
                        add(name, start, end, **args)
                        if "ward" in name and reduce:
                            add("_reduce", end - reduce, end, group=[])
                    begin = row[-1][3]
                    add("allreduce", begin, begin + 10)
                    add("optimizer", begin + 10, length - 10)
    events.sort(key=lambda event: event["ts"])
    events.append({"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "DP0-PP0-TP0"}})
    path.write_text(json.dumps(events, indent=2))
    return path
