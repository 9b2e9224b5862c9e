"""Least squares over many workers, with JAX: each worker holds a part of the data, and XLA adds up their gradients.

    berth submit fit -g 1 --workers 16 -- python examples/train_jax.py --steps 400

A worker needs nothing but what Berth puts into its environment. When the job has to yield, all workers leave after the
same step and the first one saves where they were; the next run goes on from there.
"""

import argparse
import os
import signal

# One small processor for each worker: they share the machine.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import NamedSharding, PartitionSpec

import berth

TRUTH = numpy.array([3.0, -2.0, 0.5, 1.0], dtype="float32")
ROWS = 256
RATE = 0.025


def part_of(rank):
    """The rows of one worker: always the same ones."""
    random = numpy.random.default_rng(rank)
    inputs = random.standard_normal((ROWS, len(TRUTH)), dtype="float32")
    return inputs, inputs @ TRUTH


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=400)
    steps = arguments.parse_args().steps

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    rank, workers = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], workers, rank)
    asked_to_stop = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.append(True))

    everybody = jax.make_mesh((workers,), ("worker",))
    apart, everywhere = (NamedSharding(everybody, PartitionSpec(*names)) for names in (["worker"], []))
    place = jax.make_array_from_process_local_data
    inputs, outputs = (place(apart, mine) for mine in part_of(rank))

    @jax.jit
    def step(weights, inputs, outputs, stop):
        value, slope = jax.value_and_grad(lambda weights: jnp.mean((inputs @ weights - outputs) ** 2))(weights)
        # Whether anybody was asked to stop is agreed upon with the step, so that all stop after the same one.
        return weights - RATE * slope, value, jnp.max(stop)

    path = os.path.join(berth.checkpoint_dir(), "weights.npz")
    done, weights = 0, numpy.zeros_like(TRUTH)
    if os.path.exists(path):
        saved = numpy.load(path)
        done, weights = int(saved["done"]), saved["weights"]
    weights = place(everywhere, weights)
    print(f"worker {rank} of {jax.process_count()} goes on from step {done}", flush=True)

    def save():
        if rank == 0:
            with open(path + ".new", "wb") as file:
                numpy.savez(file, done=done, weights=numpy.asarray(weights))
            os.replace(path + ".new", path)
            berth.checkpoint()

    while done < steps:
        stop = place(apart, numpy.array([1 if asked_to_stop else 0], dtype="int32"))
        weights, loss, stopping = step(weights, inputs, outputs, stop)
        done += 1
        if rank == 0 and done % 20 == 0:
            print(f"step {done} of {steps}, loss {float(loss):.6f}", flush=True)
            berth.report(step=done, steps=steps, loss=float(loss))
        if int(stopping) == 1:
            save()
            print(f"worker {rank} stops after step {done}", flush=True)
            raise SystemExit(128 + signal.SIGTERM)
    save()
    if rank == 0:
        print("weights", " ".join(f"{weight:.3f}" for weight in numpy.asarray(weights)), f"after {done} steps", flush=True)


main()
