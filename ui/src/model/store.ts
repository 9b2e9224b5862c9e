// Everything the page knows. One value, replaced when something changed; parts that did not change stay the same object,
// so that whoever shows them need not paint again.
import { useSyncExternalStore } from 'react';
import type {
  Cluster,
  ClusterTotals,
  Department,
  Event,
  Grant,
  Node,
  Project,
  Samples,
  Workload,
} from '../api/types.ts';

export type Connection =
  | { state: 'connecting' }
  | { state: 'live' }
  | { state: 'lost'; since: number; retryAt: number };

export interface State {
  phase: 'starting' | 'signed-out' | 'loading' | 'ready';
  user: string;
  /** What the user may do, where. */
  roles: readonly Grant[];
  connection: Connection;
  cluster: Cluster | null;
  /** Sums over the cluster; the stream renews them. */
  totals: ClusterTotals | null;
  workloads: ReadonlyMap<number, Workload>;
  projects: readonly Project[];
  departments: readonly Department[];
  nodes: readonly Node[];
  samples: Samples | null;
  /** The newest events, oldest first. */
  events: readonly Event[];
  /** Older finished workloads can be asked for. */
  hasOlder: boolean;
  /** Counts what may have changed why somebody waits. */
  decisions: number;
}

const EMPTY: State = {
  phase: 'starting',
  user: '',
  roles: [],
  connection: { state: 'connecting' },
  cluster: null,
  totals: null,
  workloads: new Map(),
  projects: [],
  departments: [],
  nodes: [],
  samples: null,
  events: [],
  hasOlder: false,
  decisions: 0,
};

let state = EMPTY;
const listeners = new Set<() => void>();

export function now(): State {
  return state;
}

export function change(part: Partial<State>) {
  state = { ...state, ...part };
  for (const listener of listeners) listener();
}

export function forget() {
  change({ ...EMPTY, phase: 'signed-out' });
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A part of what is known; the component paints again when that part is another one. */
export function useKnown<T>(part: (state: State) => T): T {
  return useSyncExternalStore(subscribe, () => part(state));
}
