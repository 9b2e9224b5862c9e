"""Least squares over many workers, with MPI: each process holds a part of the data, and they add up their gradients.

    runai submit-mpi fit -g 1 --processes 16 -- python3 examples/train_mpi.py --steps 400

When the job has to yield, `mpirun` ends every process; so the first one saves where they are every few steps, and the
next run goes on from there.
"""

import argparse
import array
import json
import os
import random

from mpi4py import MPI

import berth

TRUTH = [3.0, -2.0, 0.5, 1.0]
ROWS = 150
RATE = 0.025
SAVE_EVERY = 10


def part_of(rank):
    """The rows of one process: always the same ones."""
    numbers = random.Random(rank)
    inputs = [[numbers.gauss(0, 1) for _ in TRUTH] for _ in range(ROWS)]
    return [(row, sum(a * b for a, b in zip(row, TRUTH))) for row in inputs]


def slope_of(rows, weights):
    """How the squared error of these rows changes with the weights, and the error itself."""
    slope, error = [0.0] * len(weights), 0.0
    for row, wanted in rows:
        off = sum(a * b for a, b in zip(row, weights)) - wanted
        error += off * off
        for index, value in enumerate(row):
            slope[index] += 2 * off * value
    return slope + [error]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=400)
    steps = arguments.parse_args().steps
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    rows = part_of(rank)

    path = os.path.join(berth.checkpoint_dir(), "weights.json")
    saved = None
    if rank == 0 and os.path.exists(path):
        with open(path) as file:
            saved = json.load(file)
    done, weights = world.bcast(saved) or (0, [0.0] * len(TRUTH))
    print(f"process {rank} of {size} goes on from step {done}", flush=True)

    def save():
        with open(path + ".new", "w") as file:
            json.dump([done, weights], file)
        os.replace(path + ".new", path)
        berth.checkpoint()

    while done < steps:
        total = array.array("d", slope_of(rows, weights))
        world.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
        count = ROWS * size
        weights = [weight - RATE * slope / count for weight, slope in zip(weights, total)]
        done += 1
        if rank == 0 and done % SAVE_EVERY == 0:
            save()
            print(f"step {done} of {steps}, loss {total[-1] / count:.6f}", flush=True)
            berth.report(step=done, steps=steps, loss=total[-1] / count)
    if rank == 0:
        print("weights", " ".join(f"{weight:.3f}" for weight in weights), f"after {done} steps", flush=True)


main()
