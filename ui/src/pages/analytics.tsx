// What was, over time: who had how many GPUs, how long work waited, what was lost.
import { useEffect, useMemo, useState } from 'react';
import { get, serverNow, withQuery } from '../api/client.ts';
import type { Project, Workload, WorkloadList } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import { go, here, usePlace } from '../model/router.ts';
import { type Point, type Range, useSeries } from '../model/series.ts';
import { useKnown } from '../model/store.ts';
import { Chart, type Line } from '../parts/chart.tsx';
import { Button, Copyable, Empty, useNow } from '../parts/small.tsx';
import { type Common, GpuHours, Lost, Panel, seriesFile, Waiting } from './analytics-panels.tsx';

const RANGES = [
  { id: '15m', text: '15 min', ms: 900_000 },
  { id: '1h', text: '1 h', ms: 3_600_000 },
  { id: '6h', text: '6 h', ms: 21_600_000 },
  { id: '24h', text: '24 h', ms: 86_400_000 },
  { id: '7d', text: '7 d', ms: 604_800_000 },
  { id: '30d', text: '30 d', ms: 2_592_000_000 },
];

interface Shown extends Range {
  /** The end is now, and moves. */
  live: boolean;
}

/** The range that the address names: a span that ends now, or two moments. */
function useRange(): Shown {
  const { query } = usePlace();
  const from = Number(query.get('from') ?? Number.NaN);
  const to = Number(query.get('to') ?? Number.NaN);
  const span = RANGES.find(range => range.id === query.get('range')) ?? RANGES[1]!;
  const [opened, setOpened] = useState(() => ({ id: span.id, at: serverNow() }));
  if (opened.id !== span.id) setOpened({ id: span.id, at: serverNow() });
  return useMemo(() => {
    if (from < to) return { from, to, live: false };
    return { from: opened.at - span.ms, to: opened.at, live: true };
  }, [from, to, span.ms, opened.at]);
}

export default function Analytics() {
  const range = useRange();
  const { query } = usePlace();
  const now = useNow(5000);
  const allProjects = useKnown(known => known.projects);
  const all = useKnown(known => known.workloads);
  const projects = useMemo(() => largest(allProjects), [allProjects]);
  const names = useMemo(() => projects.map(project => project.name), [projects]);
  const wanted = useMemo(
    () => [
      ...names.map(name => `gpus_allocated/${name}`),
      'gpus_allocated',
      'gpus',
      'gpu_utilisation',
      'workloads_waiting',
      'workloads_running',
    ],
    [names],
  );
  const series = useSeries(wanted, range, range.live);
  // While it is live the picture moves with the time, in steps that one can see.
  const shift = range.live ? Math.max(0, Math.floor((now - range.to) / 5000) * 5000) : 0;
  const shown: Shown = { from: range.from + shift, to: range.to + shift, live: range.live };
  const users = useUsers();
  const byUser = useSeries(users, range, range.live);
  const workloads = useWorkloads(range, all);
  const zoom = (from: number, to: number) =>
    go(here(null, { from: String(Math.round(from)), to: String(Math.round(to)), range: null }));
  const pan = (part: number) => {
    const by = (shown.to - shown.from) * part;
    zoom(shown.from + by, Math.min(shown.to + by, serverNow()));
  };
  const line = (name: string, title: string, colour: string): Line => ({
    name: title,
    colour,
    points: series.get(name) ?? [],
  });
  const queue = [
    line('workloads_waiting', 'Pending', 'var(--wait)'),
    line('workloads_running', 'Running', 'var(--good)'),
  ];
  const common = { from: shown.from, to: shown.to, onRange: zoom };
  const stacked = query.get('view') !== 'lines';
  const allocation = projects.map(
    (project): Line => ({
      name: project.name,
      colour: colour(project.name),
      points: series.get(`gpus_allocated/${project.name}`) ?? [],
      level: project.settings.quota ?? 0,
    }),
  );
  const isEmpty = !range.live ? false : (series.get('gpus') ?? []).length === 0;
  return (
    <div className="page">
      <div className="page-head">
        <h1>Analytics</h1>
        <span className="room" />
        <div className="ranges">
          <Button icon="left" label="Earlier" onClick={() => pan(-0.5)} />
          <fieldset className="segments" aria-label="Range">
            {RANGES.map(option => (
              <button
                key={option.id}
                type="button"
                aria-pressed={range.live && (query.get('range') ?? '1h') === option.id}
                onClick={() => go(here(null, { range: option.id, from: null, to: null }))}
              >
                {option.text}
              </button>
            ))}
          </fieldset>
          <Button icon="right" label="Later" disabled={range.live} onClick={() => pan(0.5)} />
        </div>
        {!range.live && <Button onClick={() => go(here(null, { from: null, to: null }))}>Back to now</Button>}
      </div>
      {isEmpty && (
        <div className="note">
          <p>Numbers are noted every ten seconds while the server runs; there are none in this range yet.</p>
        </div>
      )}
      <div className="charts">
        <Allocation lines={allocation} stacked={stacked} common={common} />
        <Panel
          title="Utilisation"
          note="of all GPUs, as they or their workloads tell"
          file={() => seriesFile('utilisation', [line('gpu_utilisation', 'percent', '')])}
        >
          <Chart
            {...common}
            label="Utilisation of all GPUs"
            unit="%"
            most={100}
            height={170}
            lines={[line('gpu_utilisation', 'Utilisation', 'var(--good)')]}
          />
        </Panel>
        <Panel
          title="Queue"
          note="workloads that wait and that run"
          file={() => seriesFile('queue', queue)}
          legend={queue}
        >
          <Chart {...common} label="Queue length" most={4} height={170} lines={queue} />
        </Panel>
        <Waiting workloads={workloads} range={shown} common={common} />
        <Lost workloads={workloads} range={shown} />
        <GpuHours
          title="GPU-hours by project"
          lines={allocation.map(one => ({
            name: one.name,
            colour: one.colour,
            points: inside(one.points, shown),
          }))}
          to={shown.to}
          file="gpu-hours-by-project"
        />
        <GpuHours
          title="GPU-hours by user"
          lines={users.map(name => ({
            name: name.slice('gpus_by_user/'.length),
            colour: 'var(--accent)',
            points: inside(byUser.get(name) ?? [], shown),
          }))}
          to={shown.to}
          file="gpu-hours-by-user"
        />
      </div>
    </div>
  );
}

function Allocation({ lines, stacked, common }: { lines: Line[]; stacked: boolean; common: Common }) {
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const toggle = (name: string) => {
    const next = new Set(hidden);
    if (next.has(name)) next.delete(name);
    else next.add(name);
    setHidden(next);
  };
  const shown = lines.filter(line => !hidden.has(line.name));
  return (
    <Panel
      full
      title="GPUs by project"
      note={stacked ? 'one on top of the other' : 'dotted: the quota of today'}
      file={() => seriesFile('gpus-by-project', lines)}
      tools={
        <fieldset className="segments small" aria-label="How">
          <button
            type="button"
            aria-pressed={stacked}
            onClick={() => go(here(null, { view: null }), 'replace')}
          >
            Stacked
          </button>
          <button
            type="button"
            aria-pressed={!stacked}
            onClick={() => go(here(null, { view: 'lines' }), 'replace')}
          >
            Lines
          </button>
        </fieldset>
      }
    >
      {lines.length === 0 ? (
        <Empty title="No project yet">
          <p>Each has its colour here, and its quota as a line.</p>
          <Copyable text="berth project create vision --quota 2" />
        </Empty>
      ) : (
        <Chart
          {...common}
          label="GPUs by project"
          lines={shown}
          stacked={stacked}
          levels
          height={260}
          most={4}
        />
      )}
      <div className="chart-legend">
        {lines.map(line => (
          <button
            key={line.name}
            type="button"
            aria-pressed={!hidden.has(line.name)}
            onClick={() => toggle(line.name)}
          >
            <i className="swatch" style={{ background: line.colour }} />
            {line.name}
          </button>
        ))}
      </div>
    </Panel>
  );
}

/** Series of users that were ever noted. */
function useUsers(): string[] {
  const [names, setNames] = useState<string[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    get<{ items: string[] }>('/series', stop.signal).then(
      list => setNames(list.items.filter(name => name.startsWith('gpus_by_user/')).slice(0, 50)),
      () => {},
    );
    return () => stop.abort();
  }, []);
  return names;
}

/** Workloads that are unfinished, or ended in the range. */
function useWorkloads(range: Shown, all: ReadonlyMap<number, Workload>): Workload[] {
  const [older, setOlder] = useState<Workload[]>([]);
  const from = range.from;
  useEffect(() => {
    const stop = new AbortController();
    const query = { finished: true, limit: 1000, ended_after: new Date(from).toISOString() };
    const deleted = { ...query, status: 'Deleted' };
    Promise.all(
      [query, deleted].map(query => get<WorkloadList>(withQuery('/workloads', query), stop.signal)),
    ).then(
      pages => setOlder(pages.flatMap(page => page.items)),
      () => {},
    );
    return () => stop.abort();
  }, [from]);
  return useMemo(() => {
    const known = new Map(older.map(workload => [workload.id, workload]));
    for (const workload of all.values()) known.set(workload.id, workload);
    return [...known.values()];
  }, [older, all]);
}

function inside(points: Point[], range: Range): Point[] {
  return points.filter(([at]) => at >= range.from && at <= range.to);
}

/** Projects that are drawn at most: more lines than these say nothing. */
const DRAWN_MAX = 24;

function largest(projects: readonly Project[]): readonly Project[] {
  if (projects.length <= DRAWN_MAX) return projects;
  const size = (project: Project) => Math.max(project.allocated, project.settings.quota ?? 0);
  const few = [...projects].sort((a, b) => size(b) - size(a)).slice(0, DRAWN_MAX);
  return few.sort((a, b) => a.name.localeCompare(b.name));
}
