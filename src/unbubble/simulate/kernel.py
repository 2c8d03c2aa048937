# cython: language_level=3, boundscheck=False, wraparound=False
# cython: cdivision=True, initializedcheck=False
"""The simulator's kernel: the longest path through lanes of nodes, over flat buffers.

A *lane* is a sequence of nodes that run one after another: a rank's thread, or one transfer. A
node may need one further node of any lane, and starts `lag` after that one's end:

    ends[k] = max(ends[k−1 in its lane], ends[needs[k]] + lag[k]) + duration[k]

Whoever needs two others gets a node of no duration in front. That is all there is: schedules,
sends and receives, links and streams, the overlapped pair are arrangements of such nodes (`link`).

Plain Python with its C types in kernel.pxd: compiled it runs in a few nanoseconds a node,
uncompiled it gives the same results.
"""

# bits of an action's code and kinds: see unbubble.action
OK, UNKNOWN_TIME, TWICE, MISSING, TOO_EARLY = range(5)


def run(lane_start, needs, lag, duration, ends, position, clock, stack, behind, waiter):
    """Simulate in any order; returns how many nodes ran: fewer than all of them is a deadlock.

    A worklist of lanes: each runs until a node needs what has not ended, and is woken by it.
    `waiter` must be −1 everywhere on entry and is so again on exit unless there is a deadlock;
    then `position[lane]` is the node at which each lane is stuck.
    """
    lanes = len(lane_start) - 1
    nodes = len(ends)
    done = 0
    top = 0
    for lane in range(lanes):
        stack[top] = lanes - 1 - lane
        top += 1
        position[lane] = lane_start[lane]
        clock[lane] = 0
    for k in range(nodes):
        ends[k] = -1
    while top > 0:
        top -= 1
        lane = stack[top]
        k = position[lane]
        stop = lane_start[lane + 1]
        done -= k
        now = clock[lane]
        while k < stop:
            need = needs[k]
            if need >= 0:
                ready = ends[need]
                if ready < 0:
                    behind[lane] = waiter[need]
                    waiter[need] = lane
                    break
                ready += lag[k]
                if ready > now:
                    now = ready
            now += duration[k]
            ends[k] = now
            if waiter[k] >= 0:
                other = waiter[k]
                waiter[k] = -1
                while other >= 0:
                    stack[top] = other
                    top += 1
                    other = behind[other]
            k += 1
        done += k
        position[lane] = k
        clock[lane] = now
    return done


def rank_nodes(lane_start, needs, order, position, stack, behind, waiter, done):
    """A topological order of the nodes (the same worklist without times); returns its length."""
    lanes = len(lane_start) - 1
    top = 0
    count = 0
    for lane in range(lanes):
        stack[top] = lanes - 1 - lane
        top += 1
        position[lane] = lane_start[lane]
    for k in range(len(done)):
        done[k] = 0
    while top > 0:
        top -= 1
        lane = stack[top]
        k = position[lane]
        stop = lane_start[lane + 1]
        while k < stop:
            need = needs[k]
            if need >= 0 and done[need] == 0:
                behind[lane] = waiter[need]
                waiter[need] = lane
                break
            done[k] = 1
            order[count] = k
            count += 1
            other = waiter[k]
            waiter[k] = -1
            while other >= 0:
                stack[top] = other
                top += 1
                other = behind[other]
            k += 1
        position[lane] = k
    return count


def run_known(before, needs, lag, duration, ends):
    """Simulate in a known topological order: node v runs after `before[v]` and `needs[v]`, both
    smaller. Node 0 stands for "nothing" and ends at 0."""
    nodes = len(ends)
    ends[0] = 0
    for v in range(1, nodes):
        now = ends[before[v]]
        ready = ends[needs[v]] + lag[v]
        if ready > now:
            now = ready
        ends[v] = now + duration[v]


def link(
    codes,
    rank_start,
    up,
    down,
    remote_up,
    remote_down,
    microbatches,
    times,
    pair_times,
    lag_up,
    lag_down,
    comms,
    holds,
    tables,
    node_of,
    lane_start,
    needs,
    lag,
    duration,
    lane_of,
    fault,
):
    """Turn the ranks' codes into lanes of nodes; returns the number of nodes, −1 for a fault.

    `up[s]` and `down[s]` are the stages whose forward and whose input gradient stage s needs (−1:
    none); `remote_*[s]` whether they live on another rank, `lag_*[s]` the transfer's time;
    `times[kind * stages + s]` an action's time (−1: unknown), `pair_times[s]` that of an overlapped
    pair by its forward's stage (−1: the sum). `holds`: transfers hold the lanes of both ranks.
    `tables` is scratch of 6 × stages × microbatches, filled with −1: the nodes of F, backward
    (B or I), SEND_F, SEND_B, RECV_F, RECV_B by stage and microbatch.
    A fault is named in `fault`: what, index of the code, and the stage it misses.
    """
    stages = len(up)
    size = stages * microbatches
    ranks = len(rank_start) - 1
    node = 0
    # pass 1: number the nodes, note who produces what
    for rank in range(ranks):
        lane_start[rank] = node
        for index in range(rank_start[rank], rank_start[rank + 1]):
            code = codes[index]
            kind = code & 31
            stage = code >> 6 & 0xFFFFFF
            slot = stage * microbatches + (code >> 30) - 1
            # a transfer's other end is a second need
            if comms and (
                (kind == 0 and remote_up[stage])
                or ((kind == 1 or kind == 2) and remote_down[stage])
            ):
                lane_of[node] = rank
                node += 1
            node_of[index] = node
            lane_of[node] = rank
            table = -1
            if kind == 0:
                table = 0
            elif kind == 1 or kind == 2:
                table = 1
            elif kind == 4:
                table = 2
            elif kind == 6:
                table = 3
            elif kind == 5:
                table = 4
            elif kind == 7:
                table = 5
            if table >= 0:
                if tables[table * size + slot] >= 0:
                    fault[0] = 2
                    fault[1] = index
                    return -1
                tables[table * size + slot] = node
            node += 1
            if holds and 4 <= kind <= 7:
                lane_of[node] = rank
                node += 1
    lane_start[ranks] = node
    # pass 2: needs, lags and durations
    carried = 0
    joined_stage = -1
    for rank in range(ranks):
        for index in range(rank_start[rank], rank_start[rank + 1]):
            code = codes[index]
            kind = code & 31
            stage = code >> 6 & 0xFFFFFF
            micro = (code >> 30) - 1
            slot = stage * microbatches + micro
            node = node_of[index]
            need = -1
            wait = 0
            long_time = times[kind * stages + stage]
            if long_time < 0:
                fault[0] = 1
                fault[1] = index
                return -1
            if kind == 0 and up[stage] >= 0:
                other = up[stage] * microbatches + micro
                wait = lag_up[stage]
                if comms and remote_up[stage]:
                    need = tables[4 * size + slot]
                    if need < 0 or tables[2 * size + other] < 0:
                        fault[0] = 3
                        fault[1] = index
                        fault[2] = up[stage]
                        return -1
                    needs[node - 1] = tables[2 * size + other]
                    lag[node - 1] = wait
                    duration[node - 1] = 0
                else:
                    need = tables[other]
                    if need < 0:
                        fault[0] = 3
                        fault[1] = index
                        fault[2] = up[stage]
                        return -1
            elif kind == 1 or kind == 2:
                if down[stage] < 0:
                    need = tables[slot]  # the loss: its own forward
                    if need < 0:
                        fault[0] = 3
                        fault[1] = index
                        fault[2] = stage
                        return -1
                else:
                    other = down[stage] * microbatches + micro
                    wait = lag_down[stage]
                    if comms and remote_down[stage]:
                        need = tables[5 * size + slot]
                        if need < 0 or tables[3 * size + other] < 0:
                            fault[0] = 3
                            fault[1] = index
                            fault[2] = down[stage]
                            return -1
                        needs[node - 1] = tables[3 * size + other]
                        lag[node - 1] = wait
                        duration[node - 1] = 0
                    else:
                        need = tables[size + other]
                        if need < 0:
                            fault[0] = 3
                            fault[1] = index
                            fault[2] = down[stage]
                            return -1
            elif kind == 3:
                need = tables[size + slot]  # the input gradient comes first
                if need < 0:
                    fault[0] = 3
                    fault[1] = index
                    fault[2] = stage
                    return -1
            elif kind == 4 or kind == 6:
                need = tables[(0 if kind == 4 else size) + slot]
                if need < 0:
                    fault[0] = 3
                    fault[1] = index
                    fault[2] = stage
                    return -1
            needs[node] = need
            lag[node] = wait
            if code & 32:  # the first of an overlapped pair waits, the second runs for both
                carried = long_time
                joined_stage = stage
                duration[node] = 0
            elif joined_stage >= 0:
                if pair_times[joined_stage] >= 0:
                    duration[node] = pair_times[joined_stage]
                else:
                    duration[node] = carried + long_time
                joined_stage = -1
            else:
                duration[node] = long_time
            if holds and 4 <= kind <= 7:
                # the lane is held until the other end has posted and the transfer is over
                if kind == 4:
                    other = down[stage]
                    need = tables[4 * size + other * microbatches + micro] if other >= 0 else -1
                    wait = lag_up[other] if other >= 0 else 0
                elif kind == 6:
                    other = up[stage]
                    need = tables[5 * size + other * microbatches + micro] if other >= 0 else -1
                    wait = lag_down[other] if other >= 0 else 0
                elif kind == 5:
                    other = up[stage]
                    need = tables[2 * size + other * microbatches + micro] if other >= 0 else -1
                    wait = lag_up[stage]
                else:
                    other = down[stage]
                    need = tables[3 * size + other * microbatches + micro] if other >= 0 else -1
                    wait = lag_down[stage]
                if need < 0:
                    fault[0] = 3
                    fault[1] = index
                    fault[2] = other
                    return -1
                needs[node + 1] = need
                lag[node + 1] = 0
                duration[node + 1] = wait
    return lane_start[ranks]
