// What follows from the list of workloads, worked out once per list. It has no sums over the cluster: a person sees a part of the
// workloads, so sums come from the server.
import type { Workload } from '../api/types.ts';
import { isFinal, isPlaced, isWaiting } from './status.ts';

/** A share of a device, and who has it. */
export interface Holding {
  workload: Workload;
  share: number;
  /** It was told to stop, and has not left yet. */
  leaves: boolean;
}

type All = ReadonlyMap<number, Workload>;

function once<T>(work: (all: All) => T): (all: All) => T {
  const known = new WeakMap<All, T>();
  return all => {
    let found = known.get(all);
    if (found === undefined) {
      found = work(all);
      known.set(all, found);
    }
    return found;
  };
}

export const unfinished = once(all => [...all.values()].filter(workload => !isFinal(workload.status)));

export const running = once(all => unfinished(all).filter(isPlaced));

export const pending = once(all => unfinished(all).filter(isWaiting));

/** What was worked out before. A node on which nothing changed keeps its object, so that whoever shows it need not paint again. */
let before: ReadonlyMap<string, ReadonlyMap<number, Holding[]>> = new Map();

/** Who is on which device: by node, then by the device's position. */
export const holdings = once(all => {
  const found = new Map<string, Map<number, Holding[]>>();
  for (const workload of unfinished(all)) {
    for (const task of workload.tasks) {
      let node = found.get(task.node);
      if (node === undefined) {
        node = new Map();
        found.set(task.node, node);
      }
      const share = task.devices.length === 0 ? 0 : task.gpus / task.devices.length;
      for (const device of task.devices) {
        const on = node.get(device) ?? [];
        on.push({ workload, share, leaves: task.status === 'Stopping' });
        node.set(device, on);
      }
    }
  }
  for (const [name, node] of found) {
    const known = before.get(name);
    if (known && isSame(known, node)) found.set(name, known as Map<number, Holding[]>);
  }
  before = found;
  return found;
});

function isSame(a: ReadonlyMap<number, Holding[]>, b: ReadonlyMap<number, Holding[]>) {
  if (a.size !== b.size) return false;
  for (const [device, on] of b) {
    const known = a.get(device);
    if (known?.length !== on.length) return false;
    const same = on.every(({ workload, share, leaves }, index) => {
      const other = known[index]!;
      return other.workload === workload && other.share === share && other.leaves === leaves;
    });
    if (!same) return false;
  }
  return true;
}

/** Amounts have six decimals; their sums have too. */
export function sum(a: number, b: number) {
  return Math.round((a + b) * 1e6) / 1e6;
}

/** What a workload reports of its GPUs, while it runs; what it reported before its end says nothing about now. */
export function utilisationOf(workload: Workload): number | null {
  return workload.status === 'Running' ? (workload.progress?.utilisation ?? null) : null;
}
