# cython: language_level=3, boundscheck=False, wraparound=False
# cython: cdivision=True, initializedcheck=False
"""Packing's inner loops over the flat buffers of a linked program (see unbubble.simulate.kernel).

Rank r's lane holds its F and I in order, from `lane_start[r]`, then its W in the order of the I,
from `weights_start[r]`. Plain Python with its C types in kernel.pxd, compiled or not: the results
are the same.
"""


def fill(
    lane_start, weights_start, needs, lag, duration, changes, capacity, patience, deadlines,
    ends, order, position, weight, ready, clock, held, waited, stack, behind, waiter,
):  # fmt: skip
    """Run every lane's F and I in order, its W between them; returns the number of nodes run.

    A W runs in front of an action that needs its memory; where it fits the gap in front of it;
    where it does not fit, if that action still ends by its deadline or the lane has waited more
    than `patience` in all. `order[lane_start[r] …]` are the nodes of lane r as they ran, `clock[r]`
    its end. `ends` and `waiter` are −1 everywhere on entry.
    """
    lanes = len(weights_start)
    done = 0
    top = 0
    for lane in range(lanes):
        stack[top] = lanes - 1 - lane
        top += 1
        position[lane] = lane_start[lane]
        weight[lane] = weights_start[lane]
        ready[lane] = weights_start[lane]
        clock[lane] = 0
        held[lane] = 0
        waited[lane] = 0
    while top > 0:
        top -= 1
        lane = stack[top]
        k = position[lane]
        stop = weights_start[lane]
        w = weight[lane]
        at = k + w - stop
        now = clock[lane]
        while k < stop:
            arrival = 0
            need = needs[k]
            if need >= 0:
                arrival = ends[need]
                if arrival < 0:
                    behind[lane] = waiter[need]
                    waiter[need] = lane
                    break
                arrival += lag[k]
            while w < ready[lane]:
                if held[lane] + changes[k] <= capacity[lane]:
                    if arrival <= now:
                        break
                    after = now + duration[w]
                    if (
                        after > arrival
                        and after + duration[k] > deadlines[k]
                        and waited[lane] + arrival - now <= patience[lane]
                    ):
                        break
                now += duration[w]
                held[lane] += changes[w]
                order[at] = w
                at += 1
                w += 1
                done += 1
            if arrival > now:
                if k > lane_start[lane]:
                    waited[lane] += arrival - now
                now = arrival
            now += duration[k]
            ends[k] = now
            held[lane] += changes[k]
            order[at] = k
            at += 1
            done += 1
            if changes[k] <= 0:
                ready[lane] += 1
            other = waiter[k]
            while other >= 0:
                stack[top] = other
                top += 1
                other = behind[other]
            waiter[k] = -1
            k += 1
        if k == stop:
            while w < lane_start[lane + 1]:
                now += duration[w]
                order[at] = w
                at += 1
                w += 1
                done += 1
        position[lane] = k
        weight[lane] = w
        clock[lane] = now
    return done


def find_deadlines(lane_start, weights_start, needs, lag, duration, order, lane_ends, deadlines):
    """The latest end of every F and I with which lane r can still end by `lane_ends[r]`, were only
    its last W to follow its last I. `order`: the nodes in topological order; `deadlines`: −1 on
    entry, and so for W on exit."""
    nodes = len(order)
    for lane in range(len(weights_start)):
        for k in range(lane_start[lane], weights_start[lane]):
            deadlines[k] = 1 << 62
        deadlines[weights_start[lane] - 1] = lane_ends[lane] - duration[lane_start[lane + 1] - 1]
    for back in range(nodes):
        k = order[nodes - 1 - back]
        if deadlines[k] < 0:
            continue
        latest = deadlines[k] - duration[k]
        if k > 0 and latest < deadlines[k - 1]:  # before a lane's first is a W of another lane
            deadlines[k - 1] = latest
        need = needs[k]
        if need >= 0 and latest - lag[k] < deadlines[need]:
            deadlines[need] = latest - lag[k]
