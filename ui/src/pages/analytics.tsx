// What was, over time: who had how many GPUs, how long work waited, what was lost.
import { type ReactNode, useEffect, useMemo, useState } from 'react';
import { get, serverNow, withQuery } from '../api/client.ts';
import type { Workload, WorkloadList } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import { type Cell, csv, save } from '../model/csv.ts';
import { gpuTime, plural, span } from '../model/format.ts';
import { go, here, usePlace } from '../model/router.ts';
import { hours, type Point, type Range, useSeries } from '../model/series.ts';
import { useKnown } from '../model/store.ts';
import { Chart, type Line } from '../parts/chart.tsx';
import { Button, Empty, useNow } from '../parts/small.tsx';

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
  const projects = useKnown(known => known.projects);
  const all = useKnown(known => known.workloads);
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
          file={() =>
            seriesFile('queue', [
              line('workloads_waiting', 'pending', ''),
              line('workloads_running', 'running', ''),
            ])
          }
        >
          <Chart
            {...common}
            label="Queue length"
            most={4}
            height={170}
            lines={[
              line('workloads_waiting', 'Pending', 'var(--wait)'),
              line('workloads_running', 'Running', 'var(--good)'),
            ]}
          />
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

type Common = { from: number; to: number; onRange: (from: number, to: number) => void };

function Panel(props: {
  title: string;
  note?: string;
  full?: boolean;
  tools?: ReactNode;
  file?: () => void;
  children: ReactNode;
}) {
  return (
    <section className={`panel ${props.full ? 'full' : ''}`} aria-label={props.title}>
      <div className="panel-head">
        <h2>{props.title}</h2>
        <span className="dim">{props.note}</span>
        <span className="room" />
        {props.tools}
        {props.file && (
          <Button small kind="plain" icon="file" label={`${props.title} as CSV`} onClick={props.file} />
        )}
      </div>
      <div className="chart">{props.children}</div>
    </section>
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
      <Chart
        {...common}
        label="GPUs by project"
        lines={shown}
        stacked={stacked}
        levels
        height={260}
        most={4}
      />
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

function inside(points: Point[], range: Range): Point[] {
  return points.filter(([at]) => at >= range.from && at <= range.to);
}

function seriesFile(name: string, lines: Line[]) {
  const times = [...new Set(lines.flatMap(line => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const maps = lines.map(line => new Map(line.points));
  const rows = times.map((at): Cell[] => [new Date(at).toISOString(), ...maps.map(map => map.get(at))]);
  save(`${name}.csv`, csv(['time', ...lines.map(line => line.name)], rows));
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

function middle(values: number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
}

function Waiting({ workloads, range, common }: { workloads: Workload[]; range: Range; common: Common }) {
  const starts = useMemo(
    () =>
      workloads
        .flatMap(workload => {
          if (!workload.started_at) return [];
          const at = Date.parse(workload.started_at);
          if (at < range.from || at > range.to) return [];
          return [{ workload, at, secs: (at - Date.parse(workload.submitted_at)) / 1000 }];
        })
        .sort((a, b) => a.at - b.at),
    [workloads, range.from, range.to],
  );
  const secs = starts.map(start => start.secs);
  const buckets = useMemo(() => {
    const size = (range.to - range.from) / 30;
    const lots = new Map<number, number[]>();
    for (const start of starts) {
      const lot = range.from + Math.floor((start.at - range.from) / size) * size;
      lots.set(lot, [...(lots.get(lot) ?? []), start.secs]);
    }
    return [...lots].sort(([a], [b]) => a - b);
  }, [starts, range.from, range.to]);
  const file = () =>
    save(
      'waiting-time.csv',
      csv(
        ['started', 'project', 'workload', 'waited seconds'],
        starts.map(({ workload, secs }) => [
          workload.started_at,
          workload.project,
          workload.name,
          Math.round(secs),
        ]),
      ),
    );
  const top = Math.max(1, ...secs);
  return (
    <Panel
      title="Waiting time"
      note={
        starts.length === 0
          ? 'until the first start'
          : `${plural(starts.length, 'start')}: median ${span(middle(secs, 0.5) * 1000)}, 95 % within ${span(middle(secs, 0.95) * 1000)}`
      }
      file={file}
    >
      {starts.length === 0 ? (
        <Empty title="Nothing started in this range" />
      ) : (
        <Dots
          dots={starts.map(start => ({
            at: start.at,
            value: start.secs,
            colour: colour(start.workload.project),
            name: `${start.workload.project}/${start.workload.name}`,
          }))}
          top={top}
          medians={buckets.map(([at, lot]) => [at, middle(lot, 0.5)])}
          common={common}
        />
      )}
    </Panel>
  );
}

/** Each start as a dot: when, and how long it had waited. */
function Dots(props: {
  dots: { at: number; value: number; colour: string; name: string }[];
  top: number;
  medians: Point[];
  common: Common;
}) {
  const { from, to } = props.common;
  const width = 600;
  const height = 150;
  // Seconds and hours on one scale.
  const y = (value: number) => height - 18 - (Math.log1p(value) / Math.log1p(props.top)) * (height - 30);
  const marks = [1, 10, 60, 600, 3600, 36_000, 86_400, 864_000].filter(mark => mark <= props.top);
  return (
    <div className="chart-frame">
      <svg
        viewBox={`0 0 ${width} ${height}`}
        role="img"
        aria-label={`Waiting time of ${props.dots.length} starts`}
      >
        {marks.map(mark => (
          <g key={mark}>
            <line className="rule" x1={40} x2={width} y1={y(mark)} y2={y(mark)} />
            <text x={34} y={y(mark) + 4} textAnchor="end">
              {span(mark * 1000)}
            </text>
          </g>
        ))}
        <line className="rule" x1={40} x2={width} y1={height - 18} y2={height - 18} />
        {props.dots.slice(-2000).map((dot, index) => (
          <circle
            key={index}
            cx={40 + ((dot.at - from) / (to - from)) * (width - 46)}
            cy={y(dot.value)}
            r={4}
            fill={dot.colour}
            fillOpacity={0.8}
          >
            <title>
              {dot.name} waited {span(dot.value * 1000)}
            </title>
          </circle>
        ))}
      </svg>
    </div>
  );
}

function Lost({ workloads, range }: { workloads: Workload[]; range: Range }) {
  const evictions = useMemo(
    () =>
      workloads
        .flatMap(workload =>
          (workload.evictions ?? []).map(eviction => ({ workload, eviction, at: Date.parse(eviction.at) })),
        )
        .filter(({ at }) => at >= range.from && at <= range.to)
        .sort((a, b) => b.at - a.at),
    [workloads, range.from, range.to],
  );
  const lost = evictions.reduce((all, { eviction }) => all + eviction.lost_gpu_secs, 0);
  const perProject = new Map<string, { count: number; secs: number }>();
  for (const { workload, eviction } of evictions) {
    const of = perProject.get(workload.project) ?? { count: 0, secs: 0 };
    perProject.set(workload.project, { count: of.count + 1, secs: of.secs + eviction.lost_gpu_secs });
  }
  const most = Math.max(1, ...[...perProject.values()].map(of => of.count));
  const file = () =>
    save(
      'preemptions.csv',
      csv(
        ['time', 'project', 'workload', 'rule', 'for', 'lost GPU-seconds'],
        evictions.map(({ workload, eviction }) => [
          eviction.at,
          workload.project,
          workload.name,
          eviction.rule,
          eviction.winner,
          eviction.lost_gpu_secs,
        ]),
      ),
    );
  return (
    <Panel
      title="Preemptions and work lost"
      note={`${plural(evictions.length, 'preemption')}, ${gpuTime(lost)} lost`}
      file={file}
    >
      {evictions.length === 0 ? (
        <Empty title="Nothing was stopped for others in this range" />
      ) : (
        <ul className="bars">
          {[...perProject].sort().map(([name, of]) => (
            <li key={name}>
              <span className="project">
                <i className="swatch" style={{ background: colour(name) }} />
                {name}
              </span>
              <span
                className="bar"
                style={{ width: `${(of.count / most) * 100}%`, ['--of' as string]: colour(name) }}
              />
              <span title={`${gpuTime(of.secs)} lost`}>
                {of.count} <span className="dim">· {gpuTime(of.secs)}</span>
              </span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function GpuHours({ title, lines, to, file }: { title: string; lines: Line[]; to: number; file: string }) {
  const rows = lines
    .map(line => ({ ...line, hours: hours(line.points, to) }))
    .filter(row => row.hours > 0)
    .sort((a, b) => b.hours - a.hours)
    .slice(0, 20);
  const most = Math.max(1e-9, ...rows.map(row => row.hours));
  const all = rows.reduce((sum, row) => sum + row.hours, 0);
  return (
    <Panel
      title={title}
      note={`${amount(all)} in all`}
      file={() =>
        save(
          `${file}.csv`,
          csv(
            ['name', 'GPU-hours'],
            rows.map(row => [row.name, Math.round(row.hours * 1000) / 1000]),
          ),
        )
      }
    >
      {rows.length === 0 ? (
        <Empty title="Nobody had GPUs in this range" />
      ) : (
        <ul className="bars">
          {rows.map(row => (
            <li key={row.name}>
              <span className="project">
                <i className="swatch" style={{ background: row.colour }} />
                {row.name}
              </span>
              <span
                className="bar"
                style={{ width: `${(row.hours / most) * 100}%`, ['--of' as string]: row.colour }}
              />
              <span>{amount(row.hours)}</span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function amount(hours: number) {
  return `${hours >= 100 ? Math.round(hours) : hours >= 1 ? hours.toFixed(1) : hours.toFixed(2)} h`;
}
