# cython: language_level=3, boundscheck=False, wraparound=False
# cython: cdivision=True, initializedcheck=False
"""The simulator's kernel: the longest path through lanes of nodes, over flat buffers.

A *lane* is a sequence of nodes that run one after another: a rank's thread, or one transfer. A
node may need one further node of any lane, and starts `lag` after that one's end:

    ends[k] = max(ends[k−1 in its lane], ends[needs[k]] + lag[k]) + duration[k]

Whoever needs several others gets nodes of no duration in front. That is all there is: schedules,
sends and receives, links and streams, the overlapped pair are arrangements of such nodes.

The first lanes are the ranks, node k being code k of the ranks' orders joined; then come the
transfers (`link_transfers`), then the lanes of a step's tail.

Plain Python with its C types in kernel.pxd: compiled it runs in a few nanoseconds a node,
uncompiled it gives the same results. Codes and kinds: see unbubble.action.
"""

OK, UNKNOWN_TIME, TWICE, MISSING, MALFORMED, MISPLACED, LOCAL = range(7)
"""What `fault[0]` says of code `fault[1]`; MISSING: of an action of stage `fault[2]`."""
UNLIMITED, LINK, PAIR, RANK = range(4)
"""Channels: what a transfer waits for beside its two ends."""


def run(lane_start, needs, lag, duration, ends, position, clock, stack, behind):
    """Simulate in any order; returns how many nodes ran: fewer than all of them is a deadlock, in
    which `position[lane]` is the node at which each lane is stuck.

    A worklist of lanes: each runs until a node needs what has not ended, and is woken by it. Until
    a node ends, its place in `ends` holds who waits for it: −1 nobody, −2 − r lane r and those
    behind it.
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
                    behind[lane] = ready
                    ends[need] = -2 - lane
                    break
                now = max(now, ready + lag[k])
            now += duration[k]
            waits = ends[k]
            ends[k] = now
            while waits < -1:
                stack[top] = -2 - waits
                waits = behind[stack[top]]
                top += 1
            k += 1
        done += k
        position[lane] = k
        clock[lane] = now
    return done


def find_order(lane_start, needs, order, place, position, stack, behind):
    """A topological order of the nodes (the same worklist without times); returns its length.

    `place[order[v]]` is v + 1; on entry it is −1 everywhere, and until a node's turn it holds who
    waits for it.
    """
    lanes = len(lane_start) - 1
    top = 0
    count = 0
    for lane in range(lanes):
        stack[top] = lanes - 1 - lane
        top += 1
        position[lane] = lane_start[lane]
    while top > 0:
        top -= 1
        lane = stack[top]
        k = position[lane]
        stop = lane_start[lane + 1]
        while k < stop:
            need = needs[k]
            if need >= 0 and place[need] < 0:
                behind[lane] = place[need]
                place[need] = -2 - lane
                break
            waits = place[k]
            order[count] = k
            count += 1
            place[k] = count
            while waits < -1:
                stack[top] = -2 - waits
                waits = behind[stack[top]]
                top += 1
            k += 1
        position[lane] = k
    return count


def renumber(lane_start, needs, place, before_known, needs_known):
    """Name every node by its place in a topological order, from 1.

    `before_known[v]` is the node before it in its lane, 0 for none; `needs_known` likewise.
    """
    for lane in range(len(lane_start) - 1):
        before = 0
        for k in range(lane_start[lane], lane_start[lane + 1]):
            v = place[k]
            before_known[v] = before
            before = v
            needs_known[v] = place[needs[k]] if needs[k] >= 0 else 0


def run_known(before, needs, lag, duration, ends):
    """Simulate in a known topological order: node v runs after `before[v]` and `needs[v]`, both
    smaller. Node 0 stands for "nothing" and ends at 0; whoever needs nothing has no lag."""
    nodes = len(ends)
    ends[0] = 0
    for v in range(1, nodes):
        now = ends[before[v]]
        ready = ends[needs[v]] + lag[v]
        if ready > now:
            now = ready
        ends[v] = now + duration[v]


def count_kinds(codes, counts):
    """Adds the number of codes of each kind to `counts` (32 places)."""
    for index in range(len(codes)):
        counts[codes[index] & 31] += 1


def fill_times(codes, stages, times, pair_times, out, fault):
    """`out[k]`: the time of code k; an overlapped pair's stands at its second code. 0 or −1.

    `times[kind * stages + stage]` (−1: unknown), `pair_times[s]` that of an overlapped pair by its
    forward's stage (−1: the sum of the two).
    """
    carried = 0
    joined_stage = -1
    for index in range(len(codes)):
        code = codes[index]
        stage = code >> 6 & 0xFFFFFF
        time = times[(code & 31) * stages + stage]
        if time < 0:
            fault[0] = 1
            fault[1] = index
            return -1
        if code & 32:
            carried = time
            joined_stage = stage
            time = 0
        elif joined_stage >= 0:
            time += carried
            if pair_times[joined_stage] >= 0:
                time = pair_times[joined_stage]
            joined_stage = -1
        out[index] = time
    return 0


def locate(codes, rank_start, rank_of, kinds, microbatches, tables, sends, fault):
    """Find each action's place; returns the number of transfers, −1 for a fault.

    `tables` holds rows of stages × microbatches, −1 on entry: the code at whose end F, the
    backward (B or I) and W are done; then the number of the transfer that SEND_F and SEND_B begin,
    and the codes of RECV_F and RECV_B. `sends[t]` is the code of transfer t's send. All that the
    other functions take for granted is checked here.
    """
    stages = len(rank_of)
    size = stages * microbatches
    count = 0
    for rank in range(len(rank_start) - 1):
        joined = 0
        for index in range(rank_start[rank], rank_start[rank + 1]):
            code = codes[index]
            kind = code & 31
            stage = code >> 6 & 0xFFFFFF
            micro = (code >> 30) - 1
            what = 0
            paired = 1 <= kind <= 2 and code & 32 == 0
            if (
                kind >= kinds
                or kind == 11
                or stage >= stages
                or (joined and not paired)
                or (kind < 8 and micro < 0)
            ):
                what = 4
            elif rank_of[stage] != rank:
                what = 5
            elif code & 32 and (kind != 0 or index + 1 == rank_start[rank + 1]):
                what = 4
            elif kind < 8:
                row = kind
                if kind == 2 or kind == 3:
                    row = kind - 1
                elif kind == 4:
                    row = 3
                elif kind == 6:
                    row = 4
                elif kind == 7:
                    row = 6
                place = row * size + stage * microbatches + micro
                if tables[place] >= 0:
                    what = 2
                elif kind == 4 or kind == 6:
                    tables[place] = count
                    sends[count] = index
                    count += 1
                else:
                    tables[place] = index + 1 if code & 32 else index
            if what:
                fault[0] = what
                fault[1] = index
                return -1
            joined = code & 32
    return count


def link(
    codes, microbatches, up, down, remote_up, remote_down, lag_up, lag_down, transfer_nodes,
    tables, needs, lag, fault,
):  # fmt: skip
    """What the ranks' nodes need, and how long after its end; 0, or −1 for a fault.

    `up[s]` and `down[s]` are the stages whose forward and whose input gradient stage s needs (−1:
    none), `remote_*[s]` whether they live on another rank, `lag_*[s]` the transfer's time.
    `transfer_nodes`: how many nodes each transfer has (see `link_transfers`); 0 in a compute-only
    order, whose transfers are pure latency.
    """
    stages = len(up)
    size = stages * microbatches
    nodes = len(codes)
    for index in range(nodes):
        code = codes[index]
        kind = code & 31
        stage = code >> 6 & 0xFFFFFF
        slot = stage * microbatches + (code >> 30) - 1
        other = stage
        need = -1
        wait = 0
        if kind == 0:
            other = up[stage]
            if other < 0:
                needs[index] = -1
                continue
            slot += (other - stage) * microbatches
            if remote_up[stage]:
                if transfer_nodes:
                    need = tables[3 * size + slot]
                    if need >= 0:
                        need = nodes + (need + 1) * transfer_nodes - 1
                else:
                    need = tables[slot]
                    wait = lag_up[stage]
            else:
                need = tables[slot]
        elif kind == 1 or kind == 2:
            other = down[stage]
            if other < 0:
                other = stage
                need = tables[slot]  # the loss: its own forward
            else:
                slot += (other - stage) * microbatches
                if remote_down[stage]:
                    if transfer_nodes:
                        need = tables[4 * size + slot]
                        if need >= 0:
                            need = nodes + (need + 1) * transfer_nodes - 1
                    else:
                        need = tables[size + slot]
                        wait = lag_down[stage]
                else:
                    need = tables[size + slot]
        elif kind == 3 or kind == 6:
            need = tables[size + slot]
        elif kind == 4:
            need = tables[slot]
        else:  # receives, and actions of a whole stage, need nothing
            needs[index] = -1
            continue
        if need < 0:
            fault[0] = 3
            fault[1] = index
            fault[2] = other
            return -1
        needs[index] = need
        lag[index] = wait
    return 0


def link_transfers(
    codes, rank_start, rank_of, microbatches, up, down, lag_up, lag_down, channel, stream_up,
    stream_down, holds, tables, sends, receives, last, lane_start, needs, lag, duration, fault,
):  # fmt: skip
    """Give every transfer its lane; returns the number of nodes of one transfer, −1 for a fault.

    Its nodes need in turn: the receive posted · (PAIR, RANK) what the receiver's stream did before
    · (LINK, PAIR, RANK) what the sender's did before · the send posted; the last takes the time on
    the wire. With `holds` both ranks stand still from posting to arrival: then the posts are lags
    behind the codes before them, and the send and the receive themselves end with the transfer.
    `stream_up[s]` and `stream_down[s]` number the streams of stage s's rank to its neighbours'
    ranks; `last` is scratch of one place a stream, −1 on entry.
    """
    ranks = len(rank_start) - 1
    size = len(rank_of) * microbatches
    first = len(codes)
    each = 2
    if channel == 1:
        each = 3
    elif channel >= 2:
        each = 4
    for t in range(len(sends)):
        send = sends[t]
        code = codes[send]
        stage = code >> 6 & 0xFFFFFF
        micro = (code >> 30) - 1
        other = down[stage] if code & 31 == 4 else up[stage]
        if other < 0 or rank_of[other] == rank_of[stage]:
            fault[0] = 6
            fault[1] = send
            return -1
        if code & 31 == 4:
            wire = lag_up[other]
            receive = tables[5 * size + other * microbatches + micro]
        else:
            wire = lag_down[other]
            receive = tables[6 * size + other * microbatches + micro]
        if receive < 0:
            fault[0] = 3
            fault[1] = send
            fault[2] = other
            return -1
        node = first + t * each
        final = node + each - 1
        lane_start[ranks + t] = node
        for k in range(node, final):
            needs[k] = -1
        duration[final] = wire
        if holds:
            if receive > rank_start[rank_of[other]]:
                needs[node] = receive - 1
                lag[node] = duration[receive]
            else:
                duration[node] = duration[receive]
            needs[receive] = final
            duration[receive] = 0
            producer = needs[send]
            if producer < send:
                producer = send - 1
            needs[final] = producer
            lag[final] = duration[send]
            needs[send] = final
            duration[send] = 0
        else:
            needs[node] = receive
            needs[final] = send
    lane_start[ranks + len(sends)] = first + len(sends) * each
    if channel == 0 and receives == len(sends):
        return each  # every send has found its receive, and there are no others
    # the order of each stream; a receive that no send belongs to is found here
    for rank in range(ranks):
        for index in range(rank_start[rank], rank_start[rank + 1]):
            code = codes[index]
            kind = code & 31
            if kind < 4 or kind > 7:
                continue
            stage = code >> 6 & 0xFFFFFF
            micro = (code >> 30) - 1
            other = down[stage] if kind == 4 or kind == 7 else up[stage]
            if kind == 4:
                t = tables[3 * size + stage * microbatches + micro]
            elif kind == 6:
                t = tables[4 * size + stage * microbatches + micro]
            elif other < 0 or rank_of[other] == rank:
                fault[0] = 6
                fault[1] = index
                return -1
            elif kind == 5:
                t = tables[3 * size + other * microbatches + micro]
            else:
                t = tables[4 * size + other * microbatches + micro]
            if t < 0:
                fault[0] = 3
                fault[1] = index
                fault[2] = other
                return -1
            if channel == 0 or (channel == 1 and kind & 1):
                continue
            key = stream_down[stage] if kind == 4 or kind == 7 else stream_up[stage]
            if last[key] >= 0:
                # the receiver's stream (odd kinds) comes before the sender's
                node = first + t * each + (1 if kind & 1 or channel == 1 else 2)
                needs[node] = first + (last[key] + 1) * each - 1
            last[key] = t
    return each


def read_starts(codes, rank_start, duration, ends, held, starts):
    """The start of every code; both codes of an overlapped pair get the pair's start and end.

    `held`: sends and receives stand in their lane from the end of what was before.
    """
    for rank in range(len(rank_start) - 1):
        before = 0
        for index in range(rank_start[rank], rank_start[rank + 1]):
            kind = codes[index] & 31
            if held and 4 <= kind <= 7:
                starts[index] = before
            else:
                starts[index] = ends[index] - duration[index]
            before = ends[index]
            if index > rank_start[rank] and codes[index - 1] & 32:
                starts[index - 1] = starts[index]
                ends[index - 1] = before


def add_work(codes, starts, ends):
    """Ticks of F, B, I, W and overlapped pairs."""
    total = 0
    for index in range(len(codes)):
        if codes[index] & 28 == 0 and codes[index] & 32 == 0:
            total += ends[index] - starts[index]
    return total


def largest(values):
    """The largest value; −1 where any is negative or there is none."""
    most = -1
    least = 0
    for index in range(len(values)):
        if values[index] > most:
            most = values[index]
        if values[index] < least:
            least = values[index]
    return most if least == 0 else -1
