// Numbers and times as people read them.
import type { Workload } from '../api/types.ts';
import { isWaiting } from './status.ts';

/** `4`, `0.5`, `0.333`: as much as is there, three decimals at most. */
export function gpus(amount: number): string {
  return String(Math.round(amount * 1000) / 1000);
}

export function percent(part: number): string {
  return `${Math.round(part)} %`;
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(amount: number): string {
  let value = amount;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** `12s`, `4m 10s`, `3h 5m`, `2d 4h`. */
export function span(ms: number): string {
  const secs = Math.max(0, Math.floor(ms / 1000));
  if (secs < 60) return `${secs}s`;
  const minutes = Math.floor(secs / 60);
  if (minutes < 10) return secs % 60 === 0 ? `${minutes}m` : `${minutes}m ${secs % 60}s`;
  if (minutes < 60) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 === 0 ? `${hours}h` : `${hours}h ${minutes % 60}m`;
  const days = Math.floor(hours / 24);
  return hours % 24 === 0 ? `${days}d` : `${days}d ${hours % 24}h`;
}

export function ago(at: string, now: number): string {
  const ms = now - Date.parse(at);
  return ms < 2000 ? 'just now' : `${span(ms).split(' ')[0]} ago`;
}

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

export function exact(at: string | number): string {
  return EXACT.format(typeof at === 'number' ? at : Date.parse(at));
}

const DAY = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: '2-digit', day: '2-digit' });

export function day(at: string): string {
  return DAY.format(Date.parse(at));
}

/** A choice of labels as people write it: `LABEL=VALUE`. */
export function selectorText(map: Record<string, string[]> | null | undefined): string[] {
  return Object.entries(map ?? {}).flatMap(([label, values]) => values.map(value => `${label}=${value}`));
}

/** GPU-seconds as GPU-hours, or less. */
export function gpuTime(secs: number): string {
  if (secs < 120) return `${Math.round(secs)} GPU-s`;
  if (secs < 7200) return `${Math.round(secs / 60)} GPU-min`;
  return `${(secs / 3600).toFixed(secs < 360_000 ? 1 : 0)} GPU-h`;
}

export function plural(count: number, word: string, many = `${word}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? word : many}`;
}

/** How long it ran in all its runs; time in the queue does not count. */
export function runTime(workload: Workload, now: number): number | null {
  const before = (workload.ran_secs ?? 0) * 1000;
  if (workload.running_since) return before + now - Date.parse(workload.running_since);
  if (workload.ran_secs != null) return before;
  if (workload.ended && workload.started_at)
    return Date.parse(workload.ended.at) - Date.parse(workload.started_at);
  return null;
}

/** A number as a person reads it: four digits that count, so that `0.013888888` is `0.01389`. */
export function short(value: number): string {
  if (!Number.isFinite(value) || Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(4)));
}

/** How long it waits, since its last preemption if there was one; or how long it waited in all. */
export function waitTime(workload: Workload, now: number): number {
  const submitted = Date.parse(workload.submitted_at);
  if (isWaiting(workload)) return now - Date.parse(workload.evictions?.[0]?.at ?? workload.submitted_at);
  const until = workload.ended ? Date.parse(workload.ended.at) : now;
  // What it did not run it waited; a restart in between is a moment.
  if (workload.ran_secs != null && workload.started_at)
    return Math.max(
      Date.parse(workload.started_at) - submitted,
      until - submitted - (runTime(workload, now) ?? 0),
    );
  if (workload.started_at) return Date.parse(workload.started_at) - submitted;
  return (workload.ended ? Date.parse(workload.ended.at) : now) - submitted;
}

/** The image it was submitted with; none for a command of the machine itself. */
export function imageOf(workload: Workload): string {
  const { image } = workload.request;
  return image === 'host' ? '' : (image ?? '');
}

/** Nodes it is on, each once. */
export function nodesOf(workload: Workload): string[] {
  return [...new Set(workload.tasks.map(task => task.node))].sort();
}

/** What it asks for, in a word or two: `2`, `4 × 8`, `0.5`. */
export function asksFor(workload: Workload): string {
  const workers = workload.workers_min;
  if (workers <= 1) return gpus(workload.gpus_requested);
  return `${workers} × ${gpus(workload.gpus_requested / workers)}`;
}
