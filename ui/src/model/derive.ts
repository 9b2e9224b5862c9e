// Numbers that follow from the list of workloads. Each is worked out once per list.
import type { Node, Samples, Workload } from '../api/types.ts';
import { isFinal, isPlaced, isWaiting } from './status.ts';

/** A share of a device, and who has it. */
export interface Holding {
  workload: Workload;
  share: number;
  /** It was told to stop, and has not left yet. */
  leaves: boolean;
}

export interface Totals {
  allocated: number;
  /** GPUs of work that is known to leave them idle. */
  idle: number;
  running: number;
  waiting: number;
  suspended: number;
}

export interface OfProject extends Totals {
  waitingGpus: number;
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

export const byProject = once(all => {
  const found = new Map<string, OfProject>();
  for (const workload of unfinished(all)) {
    let of = found.get(workload.project);
    if (of === undefined) {
      of = { allocated: 0, idle: 0, running: 0, waiting: 0, suspended: 0, waitingGpus: 0 };
      found.set(workload.project, of);
    }
    of.allocated = sum(of.allocated, workload.gpus_allocated);
    if (workload.idle_since) of.idle = sum(of.idle, workload.gpus_allocated);
    if (isPlaced(workload)) of.running += 1;
    if (workload.status === 'Suspended') of.suspended += 1;
    if (isWaiting(workload)) {
      of.waiting += 1;
      of.waitingGpus = sum(of.waitingGpus, workload.gpus_requested);
    }
  }
  return found;
});

export const totals = once(all => {
  const total: Totals = { allocated: 0, idle: 0, running: 0, waiting: 0, suspended: 0 };
  for (const of of byProject(all).values()) {
    total.allocated = sum(total.allocated, of.allocated);
    total.idle = sum(total.idle, of.idle);
    total.running += of.running;
    total.waiting += of.waiting;
    total.suspended += of.suspended;
  }
  return total;
});

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

/** GPUs of a node that are given, without what is leaving. */
export function allocatedOn(devices: ReadonlyMap<number, Holding[]> | undefined) {
  let allocated = 0;
  for (const on of devices?.values() ?? []) {
    for (const holding of on) if (!holding.leaves) allocated = sum(allocated, holding.share);
  }
  return allocated;
}

/** Amounts have six decimals; their sums have too. */
export function sum(a: number, b: number) {
  return Math.round((a + b) * 1e6) / 1e6;
}

/** How busy the GPUs of a node are, in percent: as they say themselves, or else whoever is on them; null when nobody says. */
export function busyOf(
  node: Node,
  on: ReadonlyMap<number, Holding[]> | undefined,
  samples: Samples | null,
): number | null {
  const noted = samples?.values[`gpu_utilisation/${node.name}`];
  if (noted !== undefined && node.devices.some(device => device.usage?.source === 'nvml')) return noted / 1e6;
  let busy = 0;
  let known = 0;
  let held = 0;
  for (const { workload, share } of [...(on?.values() ?? [])].flat()) {
    held += share;
    const told = workload.progress?.utilisation;
    if (told == null) continue;
    busy += told * share;
    known += share;
  }
  if (held === 0) return 0;
  // Of what is held and told; what is free is not busy.
  return known === 0 ? null : (busy / known) * (held / node.devices.length);
}
