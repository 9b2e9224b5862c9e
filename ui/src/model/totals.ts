// Sums over the whole cluster, as the server counts them: the same for every role, whatever part of the workloads a person sees.
import type { ClusterTotals, Node, NodeTotals } from '../api/types.ts';
import { type Holding, sum } from './derive.ts';
import { type State, useKnown } from './store.ts';

const byName = new WeakMap<ClusterTotals, ReadonlyMap<string, NodeTotals>>();

function ofNode(totals: ClusterTotals | null, name: string): NodeTotals | undefined {
  if (!totals) return undefined;
  let nodes = byName.get(totals);
  if (!nodes) {
    nodes = new Map(totals.by_node.map(node => [node.name, node]));
    byName.set(totals, nodes);
  }
  return nodes.get(name);
}

export function useTotals(): ClusterTotals | null {
  return useKnown(known => known.totals);
}

/** GPUs of a node that are allocated. */
export function useAllocated(node: string): number {
  return useKnown(known => ofNode(known.totals, node)?.gpus_allocated ?? 0);
}

/** How busy the GPUs of a node are, in percent; null when unknown. */
export function useBusy(node: string): number | null {
  return useKnown(known => ofNode(known.totals, node)?.utilisation ?? null);
}

/** How many GPUs of a node are allocated, for a list of nodes. */
export function allocatedOn(state: State, node: string): number {
  return ofNode(state.totals, node)?.gpus_allocated ?? 0;
}

export function busyOn(state: State, node: string): number | null {
  return ofNode(state.totals, node)?.utilisation ?? null;
}

/** What the server tells of a device beyond the workloads that one sees. */
export interface DeviceTotal {
  /** The share that workloads have which one may not see. */
  others: number;
  /** In percent; null when unknown or free. */
  utilisation: number | null;
}

/** Whether a role shows every workload. */
function seesAll({ roles }: State) {
  return roles.some(grant => grant.scope === 'all');
}

/** The devices of a node in a text, which stays equal while nothing changes, so that nothing is painted again. */
export function useDeviceTotals(node: Node, on: ReadonlyMap<number, Holding[]> | undefined): string {
  return useKnown(known => {
    const totals = ofNode(known.totals, node.name);
    if (!totals) return '';
    const isPart = !seesAll(known);
    return totals.devices
      .map(device => {
        const seen = isPart ? (on?.get(device.index) ?? []).reduce((all, one) => sum(all, one.share), 0) : 0;
        const others = isPart ? Math.max(0, sum(device.allocated, -seen)) : 0;
        const isUsed = device.allocated > 0 || device.utilisation_source === 'measured';
        return `${device.index}:${others}:${isUsed ? (device.utilisation ?? '') : ''}`;
      })
      .join(' ');
  });
}

/** The devices of a node out of the text. */
export function readDeviceTotals(text: string): ReadonlyMap<number, DeviceTotal> {
  const rows = text === '' ? [] : text.split(' ').map(row => row.split(':'));
  return new Map(
    rows.map(([index, others, utilisation]) => [
      Number(index),
      { others: Number(others), utilisation: utilisation ? Number(utilisation) : null },
    ]),
  );
}
