# cython: language_level=3, boundscheck=False, wraparound=False
# cython: cdivision=True, initializedcheck=False
"""Packing's inner loops over the flat buffers of a linked program (see unbubble.simulate.kernel).

For filling, rank r's lane holds its F and I in order, from `lane_start[r]`, then its W in the order
of the I, from `weights_start[r]`; for backfilling it is any order of F, I and W. Plain Python with
its C types in kernel.pxd, compiled or not: the results are the same.
"""

NEVER = 1 << 62


def in_rounds(
    lane_start, weights_start, needs, changes, topological, lane_of, rounds, places, order
):
    """Put the F and I in a topological order in which the lanes advance together, and name every
    node's lane.

    The F up to a lane's first I are of round 0, that I of round 1, the F up to the next of round 2;
    what needs an action of a later round is of that round. `topological` is any such order of all
    nodes; `places` has two elements more than there are nodes, 0 on entry.
    """
    for lane in range(len(weights_start)):
        for k in range(lane_start[lane], lane_start[lane + 1]):
            lane_of[k] = lane
    nodes = len(topological)
    for n in range(nodes):
        k = topological[n]
        lane = lane_of[k]
        if k >= weights_start[lane]:
            continue
        late = 0
        if k > lane_start[lane]:
            late = rounds[k - 1] + (changes[k - 1] <= 0)
        need = needs[k]
        if need >= 0 and rounds[need] > late:
            late = rounds[need]
        if (late & 1) != (changes[k] <= 0):
            late += 1
        rounds[k] = late
        places[late + 1] += 1
    for late in range(nodes + 1):
        places[late + 1] += places[late]
    for n in range(nodes):
        k = topological[n]
        if k < weights_start[lane_of[k]]:
            order[places[rounds[k]]] = k
            places[rounds[k]] += 1


def fill(
    order, lane_of, lane_start, weights_start, needs, lag, duration, changes, capacity, work,
    target, pace, urgent, deadlines, ends, filled, weight, ready, clock, held, waited,
):  # fmt: skip
    """Run every lane's F and I in the given order of all, its W between them.

    A W runs in front of an action that needs its memory; where it fits the gap in front of it;
    where it does not fit, unless the action is urgent, if that still ends by its deadline or the
    lane's work and waits would exceed the target. With `pace` the target moves out to the longest
    lane's work and waits so far. `filled[lane_start[r] …]` are the nodes of lane r as they ran,
    `clock[r]` its end.
    """
    lanes = len(weights_start)
    for lane in range(lanes):
        weight[lane] = weights_start[lane]
        ready[lane] = weights_start[lane]
        clock[lane] = 0
        held[lane] = 0
        waited[lane] = 0
    for n in range(len(order)):
        k = order[n]
        lane = lane_of[k]
        w = weight[lane]
        at = k + w - weights_start[lane]
        now = clock[lane]
        arrival = 0
        need = needs[k]
        if need >= 0:
            arrival = ends[need] + lag[k]
        while w < ready[lane]:
            if held[lane] + changes[k] <= capacity[lane]:
                if arrival <= now:
                    break
                after = now + duration[w]
                if (
                    after > arrival
                    and after + duration[k] > deadlines[k]
                    and (urgent[k] or work[lane] + waited[lane] + arrival - now <= target)
                ):
                    break
            now += duration[w]
            held[lane] += changes[w]
            filled[at] = w
            at += 1
            w += 1
        if arrival > now:
            if k > lane_start[lane]:
                waited[lane] += arrival - now
                if pace and work[lane] + waited[lane] > target:
                    target = work[lane] + waited[lane]
            now = arrival
        now += duration[k]
        ends[k] = now
        held[lane] += changes[k]
        filled[at] = k
        if changes[k] <= 0:
            ready[lane] += 1
        weight[lane] = w
        clock[lane] = now
    for lane in range(lanes):
        for w in range(weight[lane], lane_start[lane + 1]):
            clock[lane] += duration[w]
            filled[w] = w


def find_deadlines(lane_start, weights_start, needs, lag, duration, order, lane_ends, deadlines):
    """The latest end of every F and I with which lane r can still end by `lane_ends[r]`, were only
    its last W to follow its last I. `order`: the F and I in topological order; `deadlines`: −1 on
    entry, and so for W on exit."""
    nodes = len(order)
    for lane in range(len(weights_start)):
        for k in range(lane_start[lane], weights_start[lane]):
            deadlines[k] = NEVER
        deadlines[weights_start[lane] - 1] = lane_ends[lane] - duration[lane_start[lane + 1] - 1]
    for back in range(nodes):
        k = order[nodes - 1 - back]
        latest = deadlines[k] - duration[k]
        if k > 0 and latest < deadlines[k - 1]:  # before a lane's first is a W of another lane
            deadlines[k - 1] = latest
        need = needs[k]
        if need >= 0 and latest - lag[k] < deadlines[need]:
            deadlines[need] = latest - lag[k]


def backfill(
    lane_start, lane_of, queue_start, queue_of, needs, lag, duration, changes, capacity, reach,
    heads, following, users, further, ends, clock, held, done, wakes, order,
):  # fmt: skip
    """Run every lane's nodes; while a lane's first cannot start, the first later one that ends
    before it can and takes no memory from those it overtakes, at most `reach` nodes.

    Lane r's queues are those from `queue_start[r]`, node k is in queue `queue_of[k]`, and the nodes
    of a queue run in order. `wakes` are the times at which the lanes are looked at next, in the
    second half of a binary tree of minima. `order[lane_start[r] …]` are the nodes of lane r as they
    ran. On entry `heads`, `following`, `users`, `further` and `ends` are −1, `clock`, `held` and
    `done` 0, `wakes` NEVER.
    """
    lanes = len(clock)
    leaves = len(wakes) // 2
    never = NEVER
    for k in range(len(order) - 1, -1, -1):
        following[k] = heads[queue_of[k]]
        heads[queue_of[k]] = k
        need = needs[k]
        if need >= 0 and lane_of[need] != lane_of[k]:
            further[k] = users[need]
            users[need] = k
    for lane in range(lanes):
        wake(wakes, leaves + lane, 0)
    while wakes[1] < never:
        leaf = 1
        while leaf < leaves:
            leaf *= 2
            if wakes[leaf] > wakes[1]:
                leaf += 1
        lane = leaf - leaves
        now = wakes[leaf]
        start = queue_start[lane]
        stop = queue_start[lane + 1]
        first = next_head(heads, start, stop, -1)
        if first < 0:
            wake(wakes, leaf, never)
            continue
        limit = arrival(first, needs, lag, ends)
        if held[lane] + changes[first] > capacity[lane]:
            limit = never
        chosen = first if limit <= now else -1
        later = limit
        taken = 0
        most = 0
        passed = first
        k = first
        while chosen < 0:
            k = next_head(heads, start, stop, k)
            if k < 0 or k - first > reach:
                break
            while passed < k:
                if ends[passed] < 0:
                    taken += changes[passed]
                    most = max(most, taken)
                passed += 1
            if changes[k] > 0 and held[lane] + changes[k] + most > capacity[lane]:
                continue
            begin = max(arrival(k, needs, lag, ends), now)
            if begin + duration[k] <= limit:
                if begin == now:
                    chosen = k
                later = min(later, begin)
        if chosen >= 0:
            heads[queue_of[chosen]] = following[chosen]
            later = now + duration[chosen]
            ends[chosen] = later
            clock[lane] = later
            held[lane] += changes[chosen]
            order[lane_start[lane] + done[lane]] = chosen
            done[lane] += 1
        wake(wakes, leaf, later)
        if chosen >= 0:
            k = users[chosen]
            while k >= 0:
                begin = ends[chosen] + lag[k]
                lane = lane_of[k]
                if clock[lane] <= begin < wakes[leaves + lane]:
                    wake(wakes, leaves + lane, begin)
                k = further[k]


def next_head(heads, start, stop, after):
    """The lowest head behind a node, of the queues start … stop − 1; −1: there is none."""
    found = -1
    for queue in range(start, stop):
        head = heads[queue]
        if head > after and (found < 0 or head < found):
            found = head
    return found


def arrival(k, needs, lag, ends):
    """When a node's input is there; NEVER where that is not known yet."""
    need = needs[k]
    if need < 0:
        return 0
    if ends[need] < 0:
        return NEVER
    return ends[need] + lag[k]


def wake(wakes, leaf, time):
    """Set a leaf of the tree of minima."""
    wakes[leaf] = time
    while leaf > 1:
        leaf //= 2
        wakes[leaf] = min(wakes[2 * leaf], wakes[2 * leaf + 1])
