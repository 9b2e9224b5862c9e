// The life of a workload as phases: when it waited, started, ran, was preempted, and ran again. Worked out from its events.
import type { Event, Workload } from '../api/types.ts';
import { isFinal } from './status.ts';

export type PhaseKind = 'waiting' | 'starting' | 'running' | 'stopping' | 'suspended' | 'failed';

export interface Phase {
  kind: PhaseKind;
  from: number;
  /** Null while it goes on. */
  to: number | null;
  /** Why it began, when that is worth a word. */
  why?: string;
}

export interface Life {
  phases: Phase[];
  /** When its state was saved. */
  saved: number[];
  preemptions: { at: number; text: string }[];
  end: number | null;
}

export const PHASE_NAMES: Record<PhaseKind, string> = {
  waiting: 'Queued',
  starting: 'Starting',
  running: 'Running',
  stopping: 'Stopping',
  suspended: 'Suspended',
  failed: 'Back-off',
};

/** What follows when the workers of a phase have left. */
const AFTER: Partial<Record<PhaseKind, PhaseKind>> = { running: 'failed', starting: 'failed' };

export function lifeOf(workload: Workload, events: readonly Event[]): Life {
  const submitted = Date.parse(workload.submitted_at);
  const end = workload.ended ? Date.parse(workload.ended.at) : null;
  const phases: Phase[] = [{ kind: 'waiting', from: submitted, to: null }];
  const saved: number[] = [];
  const preemptions: { at: number; text: string }[] = [];
  let isSuspended = false;
  const begin = (kind: PhaseKind, at: number, why?: string) => {
    const last = phases.at(-1)!;
    if (last.kind === kind && !why) return;
    last.to = at;
    // Two events of one moment are one step.
    if (last.to === last.from && phases.length > 1) phases.pop();
    phases.push({ kind, from: at, to: null, why });
  };
  const known = [...events].sort((a, b) => a.seq - b.seq);
  // The log may have forgotten how it began.
  const first = known[0] ? Date.parse(known[0].at) : null;
  if (workload.started_at && (first === null || Date.parse(workload.started_at) < first))
    begin('running', Date.parse(workload.started_at));
  for (const event of known) {
    const at = Date.parse(event.at);
    const now = phases.at(-1)!.kind;
    switch (event.kind) {
      case 'started':
      case 'moved':
        isSuspended = false;
        begin('starting', at, event.kind === 'moved' ? event.message : undefined);
        break;
      case 'running':
        begin('running', at);
        break;
      case 'evicted':
        preemptions.push({ at, text: event.message });
        begin('stopping', at, event.message);
        break;
      case 'stopped':
        isSuspended = true;
        if (now === 'running' || now === 'starting') begin('stopping', at, event.message);
        else begin('suspended', at, event.message);
        break;
      case 'ended':
        begin('stopping', at, event.message);
        break;
      case 'resumed':
        isSuspended = false;
        begin('waiting', at, event.message);
        break;
      case 'task-exited':
        if (now === 'stopping') begin(isSuspended ? 'suspended' : 'waiting', at);
        else if (AFTER[now] && !hasWorkersLeft(known, event)) begin(AFTER[now]!, at, event.message);
        break;
      case 'checkpointed':
        saved.push(at);
        break;
    }
  }
  const last = phases.at(-1)!;
  if (end !== null) {
    // What it waited for after its last worker left is its end.
    if (phases.length > 1 && last.from >= end - 1000 && last.kind !== 'running') phases.pop();
    phases.at(-1)!.to = end;
  } else if (
    !isFinal(workload.status) &&
    workload.status === 'Running' &&
    last.kind !== 'running' &&
    workload.running_since
  ) {
    begin('running', Date.parse(workload.running_since));
  }
  return { phases, saved, preemptions, end };
}

/** Another worker goes on, or takes the place of this one, before anything else is decided. */
function hasWorkersLeft(events: readonly Event[], exit: Event): boolean {
  const next = events.find(
    event => event.seq > exit.seq && event.kind !== 'checkpointed' && event.kind !== 'progressed',
  );
  return next?.kind === 'task-exited' || next?.kind === 'task-started';
}
