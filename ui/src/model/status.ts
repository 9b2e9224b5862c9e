import type { Status, Workload } from '../api/types.ts';

/** What a status means to somebody who looks: it decides colour and order. */
export type Mood = 'good' | 'wait' | 'move' | 'bad' | 'done' | 'still';

const MOODS: Record<Status, Mood> = {
  Pending: 'wait',
  Starting: 'move',
  Running: 'good',
  Stopping: 'move',
  Terminating: 'move',
  Suspended: 'still',
  BackOff: 'bad',
  Succeeded: 'done',
  Failed: 'bad',
  TimedOut: 'bad',
  Deleted: 'still',
};

export const STATUSES = Object.keys(MOODS) as Status[];

export function mood(status: Status): Mood {
  return MOODS[status];
}

export function isFinal(status: Status) {
  return status === 'Succeeded' || status === 'Failed' || status === 'TimedOut' || status === 'Deleted';
}

/** Has GPUs now. */
export function isPlaced(workload: Workload) {
  return workload.status === 'Running' || workload.status === 'Starting';
}

/** Wants GPUs and has none. */
export function isWaiting(workload: Workload) {
  return (
    workload.status === 'Pending' ||
    workload.status === 'BackOff' ||
    (workload.status === 'Stopping' && workload.gpus_allocated === 0)
  );
}
