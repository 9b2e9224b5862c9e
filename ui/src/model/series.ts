// Numbers over time: read from the server for a range, and drawn on by what the stream tells.
import { useEffect, useMemo, useState } from 'react';
import { get, withQuery } from '../api/client.ts';
import type { Series } from '../api/types.ts';
import { useKnown } from './store.ts';

/** Milliseconds, and a value in its own unit. */
export type Point = [number, number];

export interface Range {
  from: number;
  to: number;
}

const known = new Map<string, Point[]>();

async function load(name: string, range: Range, signal: AbortSignal): Promise<Point[]> {
  const query = { name, from: new Date(range.from).toISOString(), to: new Date(range.to).toISOString() };
  const series = await get<Series>(withQuery('/series/points', query), signal);
  const scale = series.scale ?? 1e6;
  return series.points.map((point): Point => [Date.parse(point.at), point.mean / scale]);
}

/** The time between two points of a range, as the server keeps them: samples, or means of five minutes or an hour. */
export function stepOf(range: Range): number {
  const each = (range.to - range.from) / 600;
  return each < 30_000 ? 10_000 : each < 900_000 ? 300_000 : 3_600_000;
}

/** Points further apart have a gap between them, in which nothing was recorded. */
export function gapOf(step: number): number {
  return step <= 10_000 ? 60_000 : 2 * step;
}

/** Several series of one range; with `live`, what is noted from now on is added at the end. */
export function useSeries(names: string[], range: Range, live: boolean): ReadonlyMap<string, Point[]> {
  const list = names.join('\n');
  const [read, setRead] = useState<ReadonlyMap<string, Point[]>>(known);
  const [more, setMore] = useState<ReadonlyMap<string, Point[]>>(new Map());
  const samples = useKnown(state => state.samples);
  const { from, to } = range;
  useEffect(() => {
    const stop = new AbortController();
    const wanted = list.split('\n').filter(Boolean);
    Promise.all(wanted.map(async name => [name, await load(name, { from, to }, stop.signal)] as const)).then(
      all => {
        setRead(new Map(all));
        setMore(new Map());
      },
      () => {},
    );
    return () => stop.abort();
  }, [list, from, to]);
  useEffect(() => {
    if (!live || samples === null) return;
    const at = Date.parse(samples.at);
    setMore(before => {
      const next = new Map(before);
      for (const name of list.split('\n')) {
        const value = samples.values[name];
        if (value === undefined) continue;
        next.set(name, [...(before.get(name) ?? []), [at, value / 1e6] satisfies Point]);
      }
      return next;
    });
  }, [samples, live, list]);
  return useMemo(() => {
    const joined = new Map<string, Point[]>();
    for (const name of list.split('\n').filter(Boolean)) {
      const before = read.get(name) ?? [];
      const last = before.at(-1)?.[0] ?? 0;
      joined.set(name, live ? [...before, ...(more.get(name) ?? []).filter(([at]) => at > last)] : before);
    }
    return joined;
  }, [read, more, live, list]);
}

/** The area below a series of steps, in units times hours. A gap is not counted. */
export function hours(points: Point[], range: Range): number {
  const step = stepOf(range);
  const gap = gapOf(step);
  let all = 0;
  points.forEach(([at, value], index) => {
    const next = points[index + 1]?.[0] ?? Math.min(range.to, at + step);
    const held = next - at > gap ? step : next - at;
    all += (value * Math.max(0, held)) / 3_600_000;
  });
  return all;
}
