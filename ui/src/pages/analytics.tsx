// What was, over time: who had how many GPUs, how long work waited, what was lost.
import { useEffect, useMemo, useState } from 'react';
import { get, serverNow, withQuery } from '../api/client.ts';
import type { Project, Workload, WorkloadList } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import { go, here, usePlace } from '../model/router.ts';
import { type Point, type Range, useSeries } from '../model/series.ts';
import { useKnown } from '../model/store.ts';
import { Chart, type Line, type Mark } from '../parts/chart.tsx';
import { TextField } from '../parts/field.tsx';
import { Popover } from '../parts/menu.tsx';
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

/** The shortest span that shows all since the server started, a day at most. */
function usualRange(started: string | undefined): string {
  const age = started ? serverNow() - Date.parse(started) : 0;
  return RANGES.slice(0, 4).find(range => range.ms >= age)?.id ?? '24h';
}

/** The range that the address names: a span that ends now, or two moments. */
function useRange(usual: string): Shown {
  const { query } = usePlace();
  const from = Number(query.get('from') ?? Number.NaN);
  const to = Number(query.get('to') ?? Number.NaN);
  const span = RANGES.find(range => range.id === (query.get('range') ?? usual)) ?? RANGES[1]!;
  const [opened, setOpened] = useState(() => ({ id: span.id, at: serverNow() }));
  if (opened.id !== span.id) setOpened({ id: span.id, at: serverNow() });
  return useMemo(() => {
    if (from < to) return { from, to, live: false };
    return { from: opened.at - span.ms, to: opened.at, live: true };
  }, [from, to, span.ms, opened.at]);
}

export default function Analytics() {
  const started = useKnown(known => known.cluster?.started_at);
  const [usual] = useState(() => usualRange(started));
  const range = useRange(usual);
  const { query } = usePlace();
  const now = useNow(5000);
  const allProjects = useKnown(known => known.projects);
  const all = useKnown(known => known.workloads);
  const wantedProject = query.get('project') ?? '';
  const projects = useMemo(
    () => largest(allProjects.filter(one => wantedProject === '' || one.name === wantedProject)),
    [allProjects, wantedProject],
  );
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
  const everyWorkload = useWorkloads(range, all);
  const workloads = useMemo(
    () => everyWorkload.filter(one => wantedProject === '' || one.project === wantedProject),
    [everyWorkload, wantedProject],
  );
  const marks = useMemo(() => preemptions(workloads), [workloads]);
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
  const common = { from: shown.from, to: shown.to, onRange: zoom, marks };
  const capacity: Line = line('gpus', 'All GPUs', 'var(--text-3)');
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
        <select
          aria-label="Project"
          value={wantedProject}
          onChange={event => go(here(null, { project: event.target.value }), 'replace')}
        >
          <option value="">All projects</option>
          {allProjects.map(project => (
            <option key={project.name}>{project.name}</option>
          ))}
        </select>
        <Popover title="Custom range">
          <CustomRange from={shown.from} to={shown.to} onRange={zoom} />
        </Popover>
        <div className="ranges">
          <Button icon="left" label="Earlier" onClick={() => pan(-0.5)} />
          <fieldset className="segments" aria-label="Range">
            {RANGES.map(option => (
              <button
                key={option.id}
                type="button"
                aria-pressed={range.live && (query.get('range') ?? usual) === option.id}
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
          <p>The server records numbers every ten seconds while it runs. There are none in this range yet.</p>
        </div>
      )}
      <div className="charts">
        <Allocation lines={allocation} capacity={capacity} stacked={stacked} common={common} />
        <Panel
          title="Utilisation"
          note="of all GPUs; measured, or reported by workloads"
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
          note="pending and running workloads"
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
          range={shown}
          file="gpu-hours-by-project"
        />
        <GpuHours
          title="GPU-hours by user"
          lines={users.map(name => ({
            name: name.slice('gpus_by_user/'.length),
            colour: 'var(--accent)',
            points: inside(byUser.get(name) ?? [], shown),
          }))}
          range={shown}
          file="gpu-hours-by-user"
        />
      </div>
    </div>
  );
}

function Allocation(props: { lines: Line[]; capacity: Line; stacked: boolean; common: Common }) {
  const { lines, capacity, stacked, common } = props;
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
      note={stacked ? 'stacked; grey: all GPUs' : 'dotted: the quota of today; grey: all GPUs'}
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
          <p>Each project has a colour here, and its quota as a line.</p>
          <Copyable text="berth project create vision --quota 2" />
        </Empty>
      ) : (
        <Chart
          {...common}
          label="GPUs by project"
          lines={shown}
          over={capacity}
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
    const ended_after = new Date(from).toISOString();
    const query = { finished: true, deleted: true, limit: 1000, ended_after };
    get<WorkloadList>(withQuery('/workloads', query), stop.signal).then(
      page => setOlder(page.items),
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

/** Preemptions as lines in every chart. */
function preemptions(workloads: readonly Workload[]): Mark[] {
  return workloads.flatMap(workload =>
    (workload.evictions ?? []).map(eviction => ({
      at: Date.parse(eviction.at),
      text: `${workload.project}/${workload.name} preempted${eviction.winner ? ` by ${eviction.winner}` : ''}`,
    })),
  );
}

/** A moment as a field of a form has it, in the time of the browser. */
function local(at: number): string {
  const away = new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - away).toISOString().slice(0, 16);
}

function CustomRange(props: { from: number; to: number; onRange: (from: number, to: number) => void }) {
  const [from, setFrom] = useState(local(props.from));
  const [to, setTo] = useState(local(props.to));
  const range = [Date.parse(from), Date.parse(to)] as const;
  const isRange = range[0] < range[1];
  return (
    <form
      className="custom-range"
      onSubmit={event => {
        event.preventDefault();
        if (isRange) props.onRange(...range);
      }}
    >
      <TextField label="From" type="datetime-local" value={from} onChange={setFrom} />
      <TextField
        label="To"
        type="datetime-local"
        value={to}
        onChange={setTo}
        problem={isRange ? null : 'The end must be after the beginning'}
      />
      <Button type="submit" kind="primary" disabled={!isRange}>
        Show
      </Button>
    </form>
  );
}
